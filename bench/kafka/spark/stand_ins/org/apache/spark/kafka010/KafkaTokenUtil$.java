package org.apache.spark.kafka010;

/** No delegation tokens. */
public final class KafkaTokenUtil$ {
    public static final KafkaTokenUtil$ MODULE$ = new KafkaTokenUtil$();

    public scala.Option<?> findMatchingTokenClusterConfig(org.apache.spark.SparkConf conf, String servers) {
        return scala.Option.empty();
    }

    public boolean needTokenUpdate(java.util.Map<String, Object> params, scala.Option<?> cluster) {
        return false;
    }
}
