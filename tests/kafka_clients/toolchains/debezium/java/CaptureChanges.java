import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Debezium's embedded engine, which copies the rows of {@link Database} into a topic by key, each batch in a
 * transaction. Its offsets are in a topic, too. Arguments: the server, the port of the database, the topic, the topic
 * of offsets.
 */
public final class CaptureChanges {
  private CaptureChanges() {}

  public static void main(String[] arguments) throws Exception {
    String address = arguments[0];
    String topic = arguments[2];
    Map<String, Object> settings = Map.of("bootstrap.servers", address, "transactional.id", "capture");
    StringSerializer strings = new StringSerializer();
    try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, strings, strings)) {
      producer.initTransactions();
      try (DebeziumEngine<ChangeEvent<String, String>> engine =
          DebeziumEngine.create(Json.class)
              .using(engineSettings(address, arguments[1], arguments[3]))
              .using((isGood, message, error) -> System.out.println("ended: " + message + " " + error))
              .notifying(
                  (events, committer) -> {
                    producer.beginTransaction();
                    for (ChangeEvent<String, String> event : events) {
                      producer.send(new ProducerRecord<>(topic, event.key(), event.value()));
                    }
                    producer.commitTransaction();
                    for (ChangeEvent<String, String> event : events) {
                      committer.markProcessed(event);
                    }
                    committer.markBatchFinished();
                  })
              .build()) {
        engine.run();
      }
    }
  }

  private static Properties engineSettings(String address, String port, String offsets) {
    Properties settings = new Properties();
    settings.put("name", "items");
    settings.put("bootstrap.servers", address);
    settings.put("offset.storage", "org.apache.kafka.connect.storage.KafkaOffsetBackingStore");
    settings.put("offset.storage.topic", offsets);
    settings.put("offset.storage.partitions", "1");
    settings.put("offset.storage.replication.factor", "1");
    settings.put("offset.flush.interval.ms", "100");
    settings.put("connector.class", "io.debezium.connector.postgresql.PostgresConnector");
    settings.put("plugin.name", "pgoutput");
    settings.put("topic.prefix", "shop");
    settings.put("database.hostname", "localhost");
    settings.put("database.port", port);
    settings.put("database.user", "postgres");
    settings.put("database.password", "postgres");
    settings.put("database.dbname", "postgres");
    settings.put("table.include.list", "public.items");
    settings.put("max.batch.size", "50");
    settings.put("converter.schemas.enable", "false");
    settings.put("transforms", "unwrap");
    settings.put("transforms.unwrap.type", "io.debezium.transforms.ExtractNewRecordState");
    settings.put("transforms.unwrap.delete.tombstone.handling.mode", "tombstone");
    return settings;
  }
}
