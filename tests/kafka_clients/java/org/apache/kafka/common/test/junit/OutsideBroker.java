package org.apache.kafka.common.test.junit;

import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import kafka.network.SocketServer;
import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaApis;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreateTopicsResult;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicListing;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.mockito.AdditionalAnswers;
import org.mockito.Mockito;

/** The parts of a broker and of a controller that tests ask, answered by the metadata of the server outside. */
final class OutsideBroker {
    static final int NODE = 1;
    private static final List<String> INTERNAL = List.of("__consumer_offsets", "__transaction_state");

    private OutsideBroker() {}

    /** Returns a broker whose metadata are those of the server. Its internal topics seem to be there. */
    static BrokerServer broker(ClusterConfig config, int port, Admin admin) {
        BrokerServer broker = Mockito.mock(BrokerServer.class);
        KafkaConfig settings = settings(config);
        KRaftMetadataCache cache = Mockito.mock(KRaftMetadataCache.class);
        GroupCoordinator groups = Mockito.mock(GroupCoordinator.class);
        Mockito.when(groups.groupMetadataTopicConfigs()).thenReturn(new Properties());
        Mockito.when(cache.numPartitions(Mockito.any())).thenAnswer(call -> partitions(call.getArgument(0), admin, settings));
        Mockito.when(cache.getLeaderAndIsr(Mockito.any(), Mockito.anyInt()))
                .thenReturn(Optional.of(new LeaderAndIsr(NODE, List.of(NODE))));
        Mockito.when(cache.getAliveBrokerNodes(Mockito.any())).thenReturn(List.of(new Node(NODE, "localhost", port)));
        Mockito.when(broker.boundPort(Mockito.any())).thenReturn(port);
        Mockito.when(broker.config()).thenReturn(settings);
        Mockito.when(broker.metadataCache()).thenReturn(cache);
        Mockito.when(broker.groupCoordinator()).thenReturn(groups);
        SocketServer sockets = Mockito.mock(SocketServer.class);
        Mockito.when(sockets.boundPort(Mockito.any())).thenReturn(port);
        Mockito.when(broker.socketServer()).thenReturn(sockets);
        KafkaApis apis = Mockito.mock(KafkaApis.class);
        Mockito.when(apis.isConsumerGroupProtocolEnabled()).thenReturn(true);
        Mockito.when(broker.dataPlaneRequestProcessor()).thenReturn(apis);
        return broker;
    }

    /** Returns the only broker, under whatever number a test asks for it. */
    static Map<Integer, KafkaBroker> brokers(KafkaBroker broker) {
        Map<Integer, KafkaBroker> found = new HashMap<>() {
            @Override
            public KafkaBroker get(Object number) {
                return broker;
            }
        };
        found.put(NODE, broker);
        return found;
    }

    /** Returns controllers that know the ids of topics. They have no metadata log, so nobody can wait for one. */
    static Map<Integer, ControllerServer> controllers(Admin admin) {
        ControllerServer server = Mockito.mock(ControllerServer.class);
        Controller controller = Mockito.mock(Controller.class);
        Mockito.when(controller.findAllTopicIds(Mockito.any())).thenAnswer(call -> {
            Map<String, Uuid> ids = new HashMap<>();
            admin.listTopics().listings().get().forEach(each -> ids.put(each.name(), each.topicId()));
            return CompletableFuture.completedFuture(ids);
        });
        Mockito.when(server.controller()).thenReturn(controller);
        Map<Integer, ControllerServer> found = new HashMap<>() {
            @Override
            public Collection<ControllerServer> values() {
                return List.of();
            }
        };
        found.put(NODE, server);
        return found;
    }

    /** Returns a client for one node: topics get one replica, and internal topics, which are no topics, only seem to. */
    static Admin forOneNode(Admin admin) {
        Admin seen = Mockito.mock(Admin.class, AdditionalAnswers.delegatesTo(admin));
        Mockito.doAnswer(call -> {
                    Collection<NewTopic> wanted = call.getArgument(0);
                    return wanted.stream().anyMatch(each -> INTERNAL.contains(each.name()))
                            ? created()
                            : admin.createTopics(wanted.stream().map(OutsideBroker::onOneNode).toList());
                })
                .when(seen)
                .createTopics(Mockito.any());
        GroupSettings.note(seen, admin);
        return seen;
    }

    private static NewTopic onOneNode(NewTopic topic) {
        if (topic.replicationFactor() <= 1 || topic.numPartitions() < 0) {
            return topic;
        }
        return new NewTopic(topic.name(), topic.numPartitions(), (short) 1).configs(topic.configs());
    }

    private static CreateTopicsResult created() {
        CreateTopicsResult result = Mockito.mock(CreateTopicsResult.class);
        Mockito.when(result.topicId(Mockito.any())).thenReturn(KafkaFuture.completedFuture(Uuid.ONE_UUID));
        return result;
    }

    private static Optional<Integer> partitions(String topic, Admin admin, KafkaConfig settings) throws Exception {
        if (INTERNAL.contains(topic)) {
            String name = topic.equals(INTERNAL.get(0)) ? "offsets.topic.num.partitions" : "transaction.state.log.num.partitions";
            return Optional.of(settings.getInt(name));
        }
        Collection<TopicListing> listed = admin.listTopics().listings().get();
        if (listed.stream().noneMatch(each -> each.name().equals(topic))) {
            return Optional.empty();
        }
        return Optional.of(admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size());
    }

    private static KafkaConfig settings(ClusterConfig config) {
        Properties wanted = new Properties();
        wanted.putAll(config.serverProperties());
        wanted.put("process.roles", "broker,controller");
        wanted.put("node.id", String.valueOf(NODE));
        wanted.put("listeners", "EXTERNAL://localhost:0,CONTROLLER://localhost:0");
        wanted.put("listener.security.protocol.map", "EXTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT");
        wanted.put("inter.broker.listener.name", "EXTERNAL");
        wanted.put("controller.listener.names", "CONTROLLER");
        wanted.put("controller.quorum.voters", NODE + "@localhost:9093");
        return new KafkaConfig(wanted, false);
    }
}
