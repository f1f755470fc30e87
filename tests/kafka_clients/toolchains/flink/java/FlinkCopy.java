import java.util.concurrent.atomic.AtomicInteger;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * Copies a topic with Flink's exactly-once sink, in a cluster of this process: `FlinkCopy HOST:PORT FROM TO RECORDS`.
 * The job fails some times on its way, and each time continues from its newest checkpoint.
 */
public class FlinkCopy {
    private static final int FAILURES = 3;
    private static final AtomicInteger SEEN = new AtomicInteger();
    private static final AtomicInteger FAILED = new AtomicInteger();

    /** Takes its time for each record, so that checkpoints lie between them, and fails now and then. */
    static class Failing implements MapFunction<String, String> {
        private final int failEvery;

        Failing(int failEvery) {
            this.failEvery = failEvery;
        }

        @Override
        public String map(String value) throws InterruptedException {
            Thread.sleep(2);
            if (SEEN.incrementAndGet() % failEvery == 0 && FAILED.getAndIncrement() < FAILURES) {
                throw new IllegalStateException("a failure on purpose");
            }
            return value;
        }
    }

    public static void main(String[] arguments) throws Exception {
        String servers = arguments[0];
        int records = Integer.parseInt(arguments[3]);
        Configuration settings = new Configuration();
        settings.setString("restart-strategy.type", "fixed-delay");
        settings.setString("restart-strategy.fixed-delay.attempts", String.valueOf(FAILURES + 1));
        settings.setString("restart-strategy.fixed-delay.delay", "200 ms");
        settings.setString("execution.checkpointing.interval", "500 ms");
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(2, settings);
        KafkaSource<String> source = KafkaSource.<String>builder()
                .setBootstrapServers(servers)
                .setTopics(arguments[1])
                .setGroupId("flink")
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setBounded(OffsetsInitializer.latest())
                .setValueOnlyDeserializer(new SimpleStringSchema())
                .setProperty("isolation.level", "read_committed")
                .build();
        KafkaSink<String> sink = KafkaSink.<String>builder()
                .setBootstrapServers(servers)
                .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix("flink-copy")
                .setProperty("transaction.timeout.ms", "60000")
                .setRecordSerializer(KafkaRecordSerializationSchema.builder()
                        .setTopic(arguments[2])
                        .setValueSerializationSchema(new SimpleStringSchema())
                        .build())
                .build();
        environment
                .fromSource(source, WatermarkStrategy.noWatermarks(), "source")
                .map(new Failing(records / (FAILURES + 1)))
                .sinkTo(sink);
        environment.execute("copy");
        System.out.println("ok copied with " + Math.min(FAILED.get(), FAILURES) + " failures");
    }
}
