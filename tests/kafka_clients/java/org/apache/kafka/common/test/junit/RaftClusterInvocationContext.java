package org.apache.kafka.common.test.junit;

import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.server.fault.FaultHandlerException;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;

/**
 * Stands in for the class of Kafka's test runtime that starts brokers: tests run against the server that the system
 * property `bootstrap` names. All topics and groups are deleted before and after each test, so one suite runs at a time.
 */
public class RaftClusterInvocationContext implements TestTemplateInvocationContext {
    private static final String BOOTSTRAP = System.getProperty("bootstrap");
    private static final Admin ADMIN = Admin.create(Map.of(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, BOOTSTRAP));
    private final String name;
    private final ClusterConfig config;

    public RaftClusterInvocationContext(String name, ClusterConfig config, boolean isCombined) {
        this.name = name;
        this.config = config;
    }

    @Override
    public String getDisplayName(int number) {
        return name + " [" + number + "]";
    }

    @Override
    public List<Extension> getAdditionalExtensions() {
        OutsideServer server = new OutsideServer(config);
        BeforeEachCallback before = context -> server.deleteAll();
        AfterEachCallback after = context -> server.deleteAll();
        return List.of(before, after, new ClusterInstanceParameterResolver(server));
    }

    /** The cluster of one node that runs outside. */
    private record OutsideServer(ClusterConfig config) implements ClusterInstance {
        @Override
        public Type type() {
            return Type.KRAFT;
        }

        @Override
        public Map<Integer, KafkaBroker> brokers() {
            return OutsideBroker.brokers(OutsideBroker.broker(config, brokerBoundPorts().get(0), ADMIN));
        }

        @Override
        public Map<Integer, ControllerServer> controllers() {
            return OutsideBroker.controllers(ADMIN);
        }

        @Override
        public Set<Integer> controllerIds() {
            return Set.of(OutsideBroker.NODE);
        }

        @Override
        public ListenerName clientListener() {
            return ListenerName.normalised("EXTERNAL");
        }

        @Override
        public ListenerName controllerListenerName() {
            return ListenerName.normalised("CONTROLLER");
        }

        @Override
        public String bootstrapServers() {
            return BOOTSTRAP;
        }

        @Override
        public String bootstrapControllers() {
            return bootstrapServers();
        }

        @Override
        public List<Integer> brokerBoundPorts() {
            String address = bootstrapServers();
            return List.of(Integer.parseInt(address.substring(address.lastIndexOf(':') + 1)));
        }

        @Override
        public String clusterId() {
            try {
                return ADMIN.describeCluster().clusterId().get();
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
        }

        @Override
        public Optional<FaultHandlerException> firstFatalException() {
            return Optional.empty();
        }

        @Override
        public Optional<FaultHandlerException> firstNonFatalException() {
            return Optional.empty();
        }

        @Override
        public Admin admin(Map<String, Object> settings, boolean usesControllers) {
            return OutsideBroker.forOneNode(ClusterInstance.super.admin(settings, false));
        }

        @Override
        public <K, V> Consumer<K, V> consumer(Map<String, Object> settings) {
            return StateTopic.over(ClusterInstance.super.consumer(settings));
        }

        @Override
        public void start() {}

        @Override
        public boolean started() {
            return true;
        }

        @Override
        public void stop() {}

        @Override
        public boolean stopped() {
            return false;
        }

        @Override
        public void shutdownBroker(int broker) {
            throw new UnsupportedOperationException("the server outside goes on");
        }

        @Override
        public void startBroker(int broker) {}

        @Override
        public void waitForReadyBrokers() {}

        @Override
        public void waitTopicDeletion(String topic) {}

        @Override
        public void waitTopicCreation(String topic, int partitions) {}

        @Override
        public void ensureConsistentMetadata() {}

        /** Deletes all topics, all settings of groups, and all groups but those of consumers that go on: their sessions end later. */
        private void deleteAll() throws Exception {
            GroupSettings.restore(ADMIN);
            ADMIN.deleteTopics(ADMIN.listTopics().names().get()).all().get();
            for (GroupListing each : ADMIN.listGroups().all().get()) {
                if (each.type().equals(Optional.of(GroupType.STREAMS))) {
                    StreamsMembers.leave(each.groupId(), ADMIN, brokerBoundPorts().get(0));
                }
                attempt(ADMIN.removeMembersFromConsumerGroup(each.groupId(), new RemoveMembersFromConsumerGroupOptions())
                        .all());
                attempt(ADMIN.deleteConsumerGroups(List.of(each.groupId())).all());
            }
        }

        private static void attempt(KafkaFuture<Void> change) throws InterruptedException {
            try {
                change.get();
            } catch (ExecutionException error) {
                // The group is gone already, or still has members.
                assert error.getCause() instanceof ApiException : error;
            }
        }
    }
}
