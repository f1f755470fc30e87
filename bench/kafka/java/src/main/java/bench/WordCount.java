package bench;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.atomic.LongAdder;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/** Kafka Streams' word count with exactly_once_v2: over a repartition topic, into a store with a changelog. */
final class WordCount {
    private static final int VOCABULARY = 1_000;
    private static final int SECONDS_MAX = 300;
    private static final String STORE = "counts";

    /** Creates the topics of an application, and fills the first with lines. */
    static Map<String, Object> fill(Options options) throws Exception {
        String topic = options.text("topic");
        int partitions = options.number("partitions"), records = options.number("records"), words = options.number("words");
        try (Admin admin = Admin.create(options.client())) {
            Stream<String> names = Stream.of(topic, output(options));
            admin.createTopics(names.map(name -> new NewTopic(name, partitions, (short) 1)).toList()).all().get();
        }
        Random random = new Random(7);
        Window window = new Window(options.brokerProcess());
        Properties settings = options.client("acks", "all", "linger.ms", 20, "batch.size", 65_536);
        try (KafkaProducer<byte[], String> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new StringSerializer())) {
            for (int i = 0; i < records; i++) {
                String line = String.join(" ", random.ints(words, 0, VOCABULARY).mapToObj(each -> "word" + each).toList());
                producer.send(new ProducerRecord<>(topic, i % partitions, null, line));
            }
        }
        return window.close(records);
    }

    /**
     * Counts the words of a full topic twice, each time by an application of its own. The second is measured, from its
     * first word to its last: it finds the code compiled as far on either side. An operation is a line.
     */
    static Map<String, Object> count(Options options) throws Exception {
        try {
            countAll(options, "warm-up");
            return countAll(options, "application");
        } finally {
            deleteTopics(options);
        }
    }

    private static Map<String, Object> countAll(Options options, String application) throws Exception {
        int lines = options.number("records");
        long all = (long) lines * options.number("words");
        LongAdder counted = new LongAdder();
        AtomicReference<Throwable> fatal = new AtomicReference<>();
        Path state = Files.createTempDirectory("bench-word-count-");
        try (KafkaStreams streams = new KafkaStreams(topology(options, counted), settings(options, application, state))) {
            streams.setUncaughtExceptionHandler(failure -> {
                fatal.compareAndSet(null, failure);
                return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
            });
            streams.start();
            await(1, counted, fatal);
            Window window = new Window(options.brokerProcess());
            await(all, counted, fatal);
            return window.close(lines);
        } finally {
            delete(state);
        }
    }

    private static Properties settings(Options options, String application, Path state) {
        return options.client(
                "application.id", options.text("topic") + "-" + application,
                "group.protocol", options.text("protocol"),
                "processing.guarantee", "exactly_once_v2",
                "num.stream.threads", options.number("threads"),
                "state.dir", state,
                "auto.offset.reset", "earliest");
    }

    private static Topology topology(Options options, LongAdder counted) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(options.text("topic"), Consumed.with(Serdes.ByteArray(), Serdes.String()))
                .flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
                .aggregate(() -> 0L, (word, value, total) -> {
                    counted.increment();
                    return total + 1;
                }, Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as(STORE)
                        .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
                .toStream()
                .to(output(options), Produced.with(Serdes.String(), Serdes.Long()));
        return builder.build();
    }

    private static String output(Options options) { return options.text("topic") + "-counts"; }

    /** Waits until so many words were counted. */
    private static void await(long words, LongAdder counted, AtomicReference<Throwable> fatal) throws Exception {
        long until = System.nanoTime() + SECONDS_MAX * 1_000_000_000L;
        while (counted.sum() < words && fatal.get() == null) {
            if (System.nanoTime() > until) throw new IllegalStateException(counted.sum() + " of " + words + " words were counted");
            Thread.sleep(5);
        }
        if (fatal.get() != null) throw new IllegalStateException("the application ended", fatal.get());
    }

    /** Deletes the topics of the application, those that were made for it included. */
    private static void deleteTopics(Options options) throws Exception {
        try (Admin admin = Admin.create(options.client())) {
            String topic = options.text("topic");
            List<String> made = admin.listTopics().names().get().stream()
                    .filter(name -> name.equals(topic) || name.startsWith(topic + "-")).toList();
            admin.deleteTopics(made).all().get();
        }
    }

    private static void delete(Path folder) throws IOException {
        try (Stream<Path> all = Files.walk(folder)) {
            for (Path path : all.sorted(Comparator.reverseOrder()).toList()) Files.delete(path);
        }
    }

    private WordCount() {}
}
