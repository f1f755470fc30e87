package org.apache.spark.kafka010;

/** Nothing to redact without authentication. */
public final class KafkaRedactionUtil$ {
    public static final KafkaRedactionUtil$ MODULE$ = new KafkaRedactionUtil$();

    public scala.collection.immutable.Seq<?> redactParams(scala.collection.immutable.Seq<?> params) {
        return params;
    }
}
