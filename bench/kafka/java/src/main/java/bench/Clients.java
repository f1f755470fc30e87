package bench;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Load by the ordinary Java clients. */
final class Clients {
    static final int PARTITIONS = 3;
    private static final int OPENED_AT_A_TIME = 16;
    private static final ByteArraySerializer OUT = new ByteArraySerializer();
    private static final ByteArrayDeserializer IN = new ByteArrayDeserializer();

    static void createTopic(Options options) throws Exception {
        try (Admin admin = Admin.create(options.client())) {
            admin.createTopics(List.of(new NewTopic(options.text("topic"), PARTITIONS, (short) 1))).all().get();
        }
    }

    static void deleteTopic(Options options) throws Exception {
        try (Admin admin = Admin.create(options.client())) {
            admin.deleteTopics(List.of(options.text("topic"))).all().get();
        }
    }

    /** One record to each partition, then a commit or an abort. */
    static Map<String, Object> transactions(Options options) throws Exception {
        byte[] value = options.value();
        String topic = options.text("topic"), prefix = "java-" + System.nanoTime() + '-';
        boolean committed = options.flag("committed");
        Semaphore opening = new Semaphore(OPENED_AT_A_TIME);
        return Workers.run(options.number("producers"), options, number -> {
            KafkaProducer<byte[], byte[]> producer = transactional(options, prefix + number);
            opening.acquire();
            try {
                producer.initTransactions();
            } finally {
                opening.release();
            }
            return new Workers.Worker() {
                @Override
                public void perform() {
                    producer.beginTransaction();
                    for (int partition = 0; partition < PARTITIONS; partition++) {
                        producer.send(new ProducerRecord<>(topic, partition, null, value));
                    }
                    if (committed) {
                        producer.commitTransaction();
                    } else {
                        // Otherwise nothing would have been sent that could be aborted.
                        producer.flush();
                        producer.abortTransaction();
                    }
                }

                @Override
                public void close() { producer.close(Duration.ZERO); }
            };
        });
    }

    /** Idempotent records; what counts are those that were acknowledged. */
    static Map<String, Object> produce(Options options) throws Exception {
        byte[] value = options.value();
        String topic = options.text("topic");
        AtomicLong acknowledged = new AtomicLong(), failed = new AtomicLong();
        Callback count = (metadata, failure) -> (failure == null ? acknowledged : failed).incrementAndGet();
        Properties settings = options.client("acks", "all", "max.request.size", 10_000_000, "buffer.memory", 64 << 20);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, OUT, OUT)) {
            send(producer, topic, value, count, options.seconds("warm-up"));
            producer.flush();
            long before = acknowledged.get();
            Window window = new Window(options.brokerProcess());
            send(producer, topic, value, count, options.seconds("measured"));
            producer.flush();
            Map<String, Object> run = window.close(acknowledged.get() - before);
            run.put("errors", failed.get());
            return run;
        }
    }

    private static void send(KafkaProducer<byte[], byte[]> producer, String topic, byte[] value, Callback count, double seconds) {
        long until = System.nanoTime() + (long) (seconds * 1e9);
        while (System.nanoTime() < until) {
            for (int partition = 0; partition < PARTITIONS; partition++) {
                producer.send(new ProducerRecord<>(topic, partition, null, value), count);
            }
        }
    }

    /** Transactions of many records, one in ten of them aborted. */
    static Map<String, Object> fill(Options options) throws Exception {
        createTopic(options);
        byte[] value = options.value();
        String topic = options.text("topic");
        int records = options.number("records"), perTransaction = options.number("records-per-transaction");
        Window window = new Window(options.brokerProcess());
        try (KafkaProducer<byte[], byte[]> producer = transactional(options, "fill-" + topic, "linger.ms", 50, "batch.size", 262_144)) {
            producer.initTransactions();
            int transaction = 0;
            for (int sent = 0; sent < records; transaction++) {
                producer.beginTransaction();
                for (int i = 0; i < perTransaction && sent < records; i++, sent++) {
                    producer.send(new ProducerRecord<>(topic, sent % PARTITIONS, null, value));
                }
                if (transaction % 10 == 0) {
                    producer.flush();
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        return window.close(records);
    }

    /** Reads the committed records twice and measures the second time. */
    static Map<String, Object> consume(Options options) throws Exception {
        read(options);
        Window window = new Window(options.brokerProcess());
        return window.close(read(options));
    }

    private static long read(Options options) {
        Properties settings = options.client(
                "isolation.level", "read_committed", "enable.auto.commit", false, "auto.offset.reset", "earliest");
        List<TopicPartition> partitions = new ArrayList<>();
        for (int number = 0; number < PARTITIONS; number++) partitions.add(new TopicPartition(options.text("topic"), number));
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, IN, IN)) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            long count = 0, bytes = 0;
            while (partitions.stream().anyMatch(partition -> consumer.position(partition) < ends.get(partition))) {
                ConsumerRecords<byte[], byte[]> polled = consumer.poll(Duration.ofMillis(100));
                for (ConsumerRecord<byte[], byte[]> record : polled) {
                    count++;
                    bytes += record.value().length;
                }
            }
            if (bytes != count * options.number("bytes")) throw new IllegalStateException(count + " records held " + bytes + " bytes");
            return count;
        }
    }

    /** commitSync of ever higher offsets of one partition, one group per thread. */
    static Map<String, Object> offsetCommits(Options options) throws Exception {
        TopicPartition partition = new TopicPartition(options.text("topic"), 0);
        String prefix = "group-" + System.nanoTime() + '-';
        return Workers.run(options.number("groups"), options, number -> {
            Properties settings = options.client("group.id", prefix + number, "enable.auto.commit", false);
            KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, IN, IN);
            consumer.assign(List.of(partition));
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            long[] offset = {0};
            return new Workers.Worker() {
                @Override
                public void perform() {
                    offsets.put(partition, new OffsetAndMetadata(++offset[0]));
                    consumer.commitSync(offsets);
                }

                @Override
                public void close() { consumer.close(); }
            };
        });
    }

    private static KafkaProducer<byte[], byte[]> transactional(Options options, String id, Object... pairs) {
        Properties settings = options.client(pairs);
        settings.putIfAbsent("linger.ms", "0");
        settings.put("acks", "all");
        settings.put("transactional.id", id);
        return new KafkaProducer<>(settings, OUT, OUT);
    }

    private Clients() {}
}
