package org.apache.kafka.common.test.junit;

import java.util.List;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.StreamsGroupMemberDescription;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData;
import org.apache.kafka.common.requests.StreamsGroupHeartbeatRequest;
import org.apache.kafka.server.IntegrationTestUtils;

/** Members of streams groups that tests left behind. No call of an admin client removes them. */
final class StreamsMembers {
    private static final int LEAVE = -1;

    private StreamsMembers() {}

    /** Lets every member leave the group, as it would itself. */
    static void leave(String group, Admin admin, int port) throws Exception {
        for (StreamsGroupMemberDescription each :
                admin.describeStreamsGroups(List.of(group)).all().get().get(group).members()) {
            StreamsGroupHeartbeatRequestData request = new StreamsGroupHeartbeatRequestData()
                    .setGroupId(group)
                    .setMemberId(each.memberId())
                    .setInstanceId(each.instanceId().orElse(null))
                    .setMemberEpoch(LEAVE);
            IntegrationTestUtils.connectAndReceive(new StreamsGroupHeartbeatRequest.Builder(request).build(), port);
        }
    }
}
