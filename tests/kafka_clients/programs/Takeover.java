// Transactions of a producer that knows one of two servers: `java -cp ... Takeover.java HOST:PORT TOPIC SECONDS`.
// Prints "acknowledged VALUE" after each commit.
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringSerializer;

public class Takeover {
    public static void main(String[] arguments) throws InterruptedException {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0], "transactional.id", "java", "metadata.max.age.ms", 2_000,
            "request.timeout.ms", 5_000, "max.block.ms", 60_000, "reconnect.backoff.max.ms", 500);
        long endsMs = System.currentTimeMillis() + Long.parseLong(arguments[2]) * 1_000;
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            for (int number = 0; System.currentTimeMillis() < endsMs; number++) {
                for (int attempt = 0; !isCommitted(producer, arguments[1], number + "/" + attempt); attempt++) {
                    Thread.sleep(100);
                }
                Thread.sleep(100);
            }
        }
    }

    private static boolean isCommitted(KafkaProducer<String, String> producer, String topic, String value)
            throws InterruptedException {
        try {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 0, null, value)).get();
            producer.commitTransaction();
            System.out.println("acknowledged " + value);
            return true;
        } catch (KafkaException | ExecutionException failure) {
            System.out.println("failed " + value + ": " + failure);
            producer.abortTransaction();
            return false;
        }
    }
}
