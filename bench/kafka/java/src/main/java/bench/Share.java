package bench;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Members of one share group that take records and acknowledge each by itself. */
final class Share {
    private static final ByteArraySerializer OUT = new ByteArraySerializer();
    private static final ByteArrayDeserializer IN = new ByteArrayDeserializer();
    private static final int STARTED_SECONDS_MAX = 30;
    private static final Duration POLL = Duration.ofMillis(100);

    /** Creates a topic and fills it; a group of the topic's name begins at its first record. */
    static Map<String, Object> fill(Options options) throws Exception {
        String topic = options.text("topic");
        int partitions = options.number("partitions"), records = options.number("records");
        try (Admin admin = Admin.create(options.client())) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
            ConfigEntry start = new ConfigEntry("share.auto.offset.reset", "earliest");
            admin.incrementalAlterConfigs(Map.of(
                    new ConfigResource(ConfigResource.Type.GROUP, topic),
                    List.of(new AlterConfigOp(start, AlterConfigOp.OpType.SET)))).all().get();
        }
        byte[] value = options.value();
        Window window = new Window(options.brokerProcess());
        Properties settings = options.client("acks", "all", "linger.ms", 20, "batch.size", 65_536);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, OUT, OUT)) {
            for (int i = 0; i < records; i++) producer.send(new ProducerRecord<>(topic, i % partitions, null, value));
        }
        return window.close(records);
    }

    /** Members that drain a full topic. An operation is a record whose acknowledgement was answered without an error. */
    static Map<String, Object> acknowledge(Options options) throws Exception {
        long all = options.number("records");
        Group group = new Group(options);
        group.start(STARTED_SECONDS_MAX);
        group.await(options.seconds("warm-up"), all);
        long before = group.done();
        Window window = new Window(options.brokerProcess());
        group.await(options.seconds("measured"), all);
        Map<String, Object> run = window.close(group.done() - before);
        group.stop();
        if (group.done() == before) throw new IllegalStateException("no record was acknowledged in the measured time");
        if (before >= all) throw new IllegalStateException("all " + all + " records were acknowledged before the measured time");
        run.put("errors", group.failed.get());
        return run;
    }

    /** Members beside a producer of a steady rate. The latencies are those from a send to the answered acknowledgement. */
    static Map<String, Object> latency(Options options) throws Exception {
        String topic = options.text("topic");
        byte[] value = options.value();
        int partitions = options.number("partitions");
        double rate = options.number("rate");
        Group group = new Group(options);
        group.start(0);
        Properties settings = options.client("acks", "all", "linger.ms", 0);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, OUT, OUT)) {
            long began = System.nanoTime(), warm = (long) (options.seconds("warm-up") * 1e9);
            long until = warm + (long) (options.seconds("measured") * 1e9);
            Window window = null;
            long before = 0;
            for (long sent = 0, now; (now = System.nanoTime() - began) < until; ) {
                if (window == null && now >= warm) {
                    group.isMeasured.set(true);
                    before = group.done();
                    window = new Window(options.brokerProcess());
                }
                for (long due = (long) (now / 1e9 * rate); sent < due; sent++) {
                    producer.send(new ProducerRecord<>(topic, (int) (sent % partitions), null, stamped(value)));
                }
                Thread.sleep(1);
            }
            Map<String, Object> run = window.close(group.done() - before);
            group.stop();
            Window.latencies(run, group.latencies);
            run.put("errors", group.failed.get());
            return run;
        }
    }

    /** A copy of the value that begins with the time. */
    private static byte[] stamped(byte[] value) {
        byte[] stamped = Arrays.copyOf(value, Math.max(8, value.length));
        ByteBuffer.wrap(stamped).putLong(System.nanoTime());
        return stamped;
    }

    /** Threads with a member each, until they are stopped. */
    private static final class Group {
        final AtomicBoolean isMeasured = new AtomicBoolean(), isOver = new AtomicBoolean();
        final AtomicLong failed = new AtomicLong();
        final List<Window.Latencies> latencies = new ArrayList<>();
        private final AtomicReference<Exception> fatal = new AtomicReference<>();
        private final List<AtomicLong> acknowledged = new ArrayList<>();
        private final List<Thread> threads = new ArrayList<>();
        private final Options options;
        private final boolean isOneByOne;
        private final boolean isStamped;

        Group(Options options) {
            this.options = options;
            isOneByOne = options.number("poll-records") == 1;
            isStamped = options.flag("stamped");
        }

        /** Starts the members, and waits until each has had records, for so many seconds at most. */
        void start(int secondsMax) throws Exception {
            int count = options.number("consumers");
            CountDownLatch started = new CountDownLatch(count);
            for (int i = 0; i < count; i++) {
                AtomicLong done = new AtomicLong();
                Window.Latencies own = new Window.Latencies();
                acknowledged.add(done);
                latencies.add(own);
                Thread thread = new Thread(() -> {
                    try (KafkaShareConsumer<byte[], byte[]> consumer = open(done)) {
                        while (!isOver.get()) {
                            if (step(consumer, own)) started.countDown();
                        }
                    } catch (Exception failure) {
                        fatal.compareAndSet(null, failure);
                        started.countDown();
                    }
                });
                threads.add(thread);
                thread.start();
            }
            started.await(secondsMax, TimeUnit.SECONDS);
            if (fatal.get() != null) throw fatal.get();
        }

        private KafkaShareConsumer<byte[], byte[]> open(AtomicLong done) {
            Properties settings = options.client(
                    "group.id", options.text("topic"),
                    "share.acknowledgement.mode", "explicit",
                    "max.poll.records", options.number("poll-records"));
            if (isOneByOne) settings.put("share.acquire.mode", "record_limit");
            KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(settings, IN, IN);
            consumer.setAcknowledgementCommitCallback((offsets, failure) -> {
                long count = offsets.values().stream().mapToLong(java.util.Set::size).sum();
                (failure == null ? done : failed).addAndGet(count);
            });
            consumer.subscribe(List.of(options.text("topic")));
            return consumer;
        }

        /** Polls, acknowledges each record, and waits for the answers. True if there were records. */
        private boolean step(KafkaShareConsumer<byte[], byte[]> consumer, Window.Latencies own) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
            for (ConsumerRecord<byte[], byte[]> record : records) consumer.acknowledge(record, AcknowledgeType.ACCEPT);
            if (records.isEmpty()) return false;
            consumer.commitSync();
            if (!isStamped || !isMeasured.get()) return true;
            long now = System.nanoTime();
            for (ConsumerRecord<byte[], byte[]> record : records) {
                own.add(now - ByteBuffer.wrap(record.value()).getLong());
            }
            return true;
        }

        long done() { return acknowledged.stream().mapToLong(AtomicLong::get).sum(); }

        /** Waits for so many seconds, or until all records are done. */
        void await(double seconds, long all) throws Exception {
            long until = System.nanoTime() + (long) (seconds * 1e9);
            while (System.nanoTime() < until && done() < all && fatal.get() == null) Thread.sleep(10);
            if (fatal.get() != null) throw fatal.get();
        }

        void stop() throws Exception {
            isOver.set(true);
            for (Thread thread : threads) thread.join(10_000);
            if (fatal.get() != null) throw fatal.get();
        }
    }

    private Share() {}
}
