import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A producer that lives through kills of its server, and a reader: {@code produce ADDRESS TRANSACTIONAL_ID LIFE} and
 * {@code read ADDRESS GROUP...}, until the input ends. They print what {@code killed_producer.py} prints.
 *
 * <p>A reader begins at once, and prints at the end what it has read so far and what is left, each record as often as it
 * came.
 */
final class KilledClient {
    private static final String TOPIC = "payments";
    private static final int PARTITIONS = 3;
    private static final String TIMEOUT_MS = "10000";

    private final Properties settings;
    private KafkaProducer<String, String> producer;

    private KilledClient(Properties settings) { this.settings = settings; }

    public static void main(String[] arguments) throws Exception {
        String[] rest = Arrays.copyOfRange(arguments, 2, arguments.length);
        AtomicBoolean isEnded = new AtomicBoolean();
        Thread input = new Thread(() -> {
            try {
                System.in.readAllBytes();
            } catch (java.io.IOException ended) {
                // The end, as well.
            }
            isEnded.set(true);
        });
        input.setDaemon(true);
        input.start();
        if (arguments[0].equals("produce")) {
            produce(arguments[1], rest[0], Integer.parseInt(rest[1]), isEnded);
        } else {
            read(arguments[1], rest, isEnded);
        }
        System.exit(0);
    }

    private static void produce(String address, String id, int life, AtomicBoolean isEnded) {
        KilledClient client = new KilledClient(properties(
                "bootstrap.servers", address,
                "transactional.id", id,
                "transaction.timeout.ms", TIMEOUT_MS,
                "reconnect.backoff.max.ms", "200"));
        String name = id + "." + life, group = "of-" + id;
        Random random = new Random(name.hashCode());
        for (int number = 1; !isEnded.get(); number++) {
            List<String> values = new ArrayList<>();
            for (int count = random.nextInt(5); count >= 0; count--) values.add(name + "." + number + "." + count);
            long offset = life * 1_000_000L + number;
            tell("{\"began\": " + list(values) + ", \"group\": \"" + group + "\", \"offset\": " + offset + "}");
            tell("{\"fate\": \"" + client.fate(values, group, offset, random) + "\"}");
        }
    }

    /** What became of a transaction. */
    private String fate(List<String> values, String group, long offset, Random random) {
        boolean commits = random.nextInt(5) > 0, isAsked = false;
        try {
            if (producer == null) {
                producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
                insist(producer::initTransactions);
            }
            producer.beginTransaction();
            for (String value : values) {
                producer.send(new ProducerRecord<>(TOPIC, random.nextInt(PARTITIONS), null, value));
            }
            Map<TopicPartition, OffsetAndMetadata> position =
                    Map.of(new TopicPartition(TOPIC, 0), new OffsetAndMetadata(offset));
            producer.sendOffsetsToTransaction(position, new ConsumerGroupMetadata(group));
            // Without it, EndTxn may overtake the last batches: a race in the clients up to 4.3.1.
            producer.flush();
            isAsked = commits;
            insist(commits ? producer::commitTransaction : producer::abortTransaction);
            return commits ? "committed" : "aborted";
        } catch (KafkaException error) {
            return isAborted() || !isAsked ? "aborted" : "unknown";
        }
    }

    /** Goes on after an error. Returns whether the transaction is aborted; otherwise the next producer aborts it. */
    private boolean isAborted() {
        try {
            insist(producer::abortTransaction);
            return true;
        } catch (KafkaException fatal) {
            producer.close(Duration.ZERO);
            producer = null;
            return false;
        }
    }

    private static void insist(Runnable call) {
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException again) {
                // These calls may be repeated.
            }
        }
    }

    private static void read(String address, String[] groups, AtomicBoolean isEnded) {
        Properties settings = properties(
                "bootstrap.servers", address,
                "isolation.level", "read_committed",
                "enable.auto.commit", "false",
                "auto.offset.reset", "none",
                "reconnect.backoff.max.ms", "200");
        List<List<String>> values = new ArrayList<>();
        List<TopicPartition> partitions = new ArrayList<>();
        for (int number = 0; number < PARTITIONS; number++) {
            values.add(new ArrayList<>());
            partitions.add(new TopicPartition(TOPIC, number));
        }
        try (KafkaConsumer<String, String> reader = reader(settings)) {
            reader.assign(partitions);
            reader.seekToBeginning(partitions);
            while (!isEnded.get()) take(reader, values);
            Map<TopicPartition, Long> ends = reader.endOffsets(partitions);
            while (partitions.stream().anyMatch(each -> reader.position(each) < ends.get(each))) take(reader, values);
        }
        List<String> offsets = new ArrayList<>();
        for (String group : groups) {
            Properties ofGroup = properties("group.id", group);
            ofGroup.putAll(settings);
            try (KafkaConsumer<String, String> member = reader(ofGroup)) {
                TopicPartition first = partitions.get(0);
                offsets.add("\"" + group + "\": " + member.committed(java.util.Set.of(first)).get(first).offset());
            }
        }
        String found = values.stream().map(KilledClient::list).collect(Collectors.joining(", "));
        tell("{\"values\": [" + found + "], \"offsets\": {" + String.join(", ", offsets) + "}}");
    }

    private static KafkaConsumer<String, String> reader(Properties settings) {
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private static void take(KafkaConsumer<String, String> reader, List<List<String>> values) {
        for (ConsumerRecord<String, String> record : reader.poll(Duration.ofMillis(100))) {
            values.get(record.partition()).add(record.value());
        }
    }

    private static Properties properties(String... pairs) {
        Properties made = new Properties();
        for (int number = 0; number < pairs.length; number += 2) made.put(pairs[number], pairs[number + 1]);
        return made;
    }

    private static String list(List<String> values) {
        return values.stream().map(each -> "\"" + each + "\"").collect(Collectors.joining(", ", "[", "]"));
    }

    private static void tell(String line) {
        System.out.writeBytes((line + "\n").getBytes(StandardCharsets.UTF_8));
        System.out.flush();
    }
}
