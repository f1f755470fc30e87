"""Members of streams groups (KIP-1071): a topology is described, and its tasks come and go.

- `StreamsClient`, `AsyncStreamsClient`: poll, commit through a transaction, report offsets;
- `StreamsTopology`, `StreamsSubtopology`, `StreamsInternalTopic`, `StreamsCopartitionGroup`: what is processed;
- `Task`, `TaskRole`, `Tasks`, `StateOffset`, `TaskListener`, `AsyncTaskListener`: what a member has;
- `StreamsStatus`, `StreamsEndpoint`: what it hears of its group;
- `StreamsClientConfig`, `StreamsClientOptions`: the settings.

Built as `coordinator_client.share`: one core that does no I/O (`core`), two thin shells (`member` and `async_member`,
over `shell`). The core has a `membership`, and a `handover` of tasks to the application and back.
"""

from coordinator_client.streams.async_member import AsyncStreamsClient as AsyncStreamsClient
from coordinator_client.streams.config import StreamsClientConfig as StreamsClientConfig
from coordinator_client.streams.config import StreamsClientOptions as StreamsClientOptions
from coordinator_client.streams.endpoints import StreamsEndpoint as StreamsEndpoint
from coordinator_client.streams.member import StreamsClient as StreamsClient
from coordinator_client.streams.membership import StateOffset as StateOffset
from coordinator_client.streams.membership import StreamsStatus as StreamsStatus
from coordinator_client.streams.tasks import AsyncTaskListener as AsyncTaskListener
from coordinator_client.streams.tasks import Task as Task
from coordinator_client.streams.tasks import TaskListener as TaskListener
from coordinator_client.streams.tasks import TaskRole as TaskRole
from coordinator_client.streams.tasks import Tasks as Tasks
from coordinator_client.streams.topology import StreamsCopartitionGroup as StreamsCopartitionGroup
from coordinator_client.streams.topology import StreamsInternalTopic as StreamsInternalTopic
from coordinator_client.streams.topology import StreamsSubtopology as StreamsSubtopology
from coordinator_client.streams.topology import StreamsTopology as StreamsTopology
