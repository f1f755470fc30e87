"""Members of streams groups (KIP-1071): a topology is described, and its tasks come and go.

- `StreamsMember`, `AsyncStreamsMember`: poll, commit through a transaction, report offsets;
- `Topology`, `Subtopology`, `InternalTopic`, `CopartitionGroup`: the description of an application;
- `Task`, `TaskRole`, `Tasks`, `TaskOffset`, `TaskListener`, `AsyncTaskListener`, `StreamsStatus`: what a member has;
- `StreamsMemberConfig`, `StreamsOptions`: the settings.

Built as `coordinator_client.share`: one core that does no I/O (`core`), two thin shells (`member` and `async_member`,
over `shell`). The core has a `membership`, and a `handover` of tasks to the application and back.
"""

from coordinator_client.streams.async_member import AsyncStreamsMember as AsyncStreamsMember
from coordinator_client.streams.config import StreamsMemberConfig as StreamsMemberConfig
from coordinator_client.streams.config import StreamsOptions as StreamsOptions
from coordinator_client.streams.member import StreamsMember as StreamsMember
from coordinator_client.streams.membership import StreamsStatus as StreamsStatus
from coordinator_client.streams.membership import TaskOffset as TaskOffset
from coordinator_client.streams.tasks import AsyncTaskListener as AsyncTaskListener
from coordinator_client.streams.tasks import Task as Task
from coordinator_client.streams.tasks import TaskListener as TaskListener
from coordinator_client.streams.tasks import TaskRole as TaskRole
from coordinator_client.streams.tasks import Tasks as Tasks
from coordinator_client.streams.topology import CopartitionGroup as CopartitionGroup
from coordinator_client.streams.topology import InternalTopic as InternalTopic
from coordinator_client.streams.topology import Subtopology as Subtopology
from coordinator_client.streams.topology import Topology as Topology
