package org.apache.spark.kafka010;

import java.util.HashMap;
import java.util.Map;

/** Collects the settings of a consumer and never adds authentication. */
public class KafkaConfigUpdater {
    private final Map<String, Object> map = new HashMap<>();

    public KafkaConfigUpdater(String module, scala.collection.immutable.Map<String, Object> params) {
        params.foreach(pair -> map.put(pair._1(), pair._2()));
    }

    public KafkaConfigUpdater set(String name, Object value) {
        map.put(name, value);
        return this;
    }

    public KafkaConfigUpdater setIfUnset(String name, Object value) {
        map.putIfAbsent(name, value);
        return this;
    }

    public KafkaConfigUpdater setAuthenticationConfigIfNeeded() {
        return this;
    }

    public KafkaConfigUpdater setAuthenticationConfigIfNeeded(scala.Option<?> cluster) {
        return this;
    }

    public Map<String, Object> build() {
        return map;
    }
}
