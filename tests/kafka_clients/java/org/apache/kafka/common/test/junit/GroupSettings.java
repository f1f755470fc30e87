package org.apache.kafka.common.test.junit;

import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.admin.AlterConfigsOptions;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConfigEntry.ConfigSource;
import org.apache.kafka.common.config.ConfigResource;
import org.mockito.Mockito;

/** Settings of groups, which last longer than their groups. Each test begins without those of the one before. */
final class GroupSettings {
    private static final Set<ConfigResource> ALTERED = ConcurrentHashMap.newKeySet();

    private GroupSettings() {}

    /** Notes the groups whose settings are altered through this client, which is a mock over the other one. */
    static void note(Admin seen, Admin admin) {
        Mockito.doAnswer(call -> {
                    Map<ConfigResource, Collection<AlterConfigOp>> wanted = call.getArgument(0);
                    AlterConfigsOptions options = call.getArgument(1);
                    wanted.keySet().stream()
                            .filter(each -> each.type() == ConfigResource.Type.GROUP)
                            .forEach(ALTERED::add);
                    return admin.incrementalAlterConfigs(wanted, options);
                })
                .when(seen)
                .incrementalAlterConfigs(Mockito.any(), Mockito.any());
    }

    /** Returns all groups to the settings of the server. */
    static void restore(Admin admin) throws Exception {
        for (ConfigResource group : ALTERED) {
            Collection<ConfigEntry> entries =
                    admin.describeConfigs(List.of(group)).all().get().get(group).entries();
            List<AlterConfigOp> removals = entries.stream()
                    .filter(each -> each.source() == ConfigSource.DYNAMIC_GROUP_CONFIG)
                    .map(each -> new AlterConfigOp(new ConfigEntry(each.name(), ""), OpType.DELETE))
                    .toList();
            if (!removals.isEmpty()) {
                admin.incrementalAlterConfigs(Map.of(group, removals)).all().get();
            }
        }
        ALTERED.clear();
    }
}
