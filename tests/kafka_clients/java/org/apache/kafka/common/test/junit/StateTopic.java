package org.apache.kafka.common.test.junit;

import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.stream.LongStream;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.internals.Topic;
import org.mockito.AdditionalAnswers;
import org.mockito.Mockito;

/**
 * Kafka's topic of the states of share groups, which is no topic of the server outside. It only seems to have records, so
 * that the check of Kafka's own storage at the end of a test says nothing.
 */
final class StateTopic {
    private static final int RECORDS = 3;

    private StateTopic() {}

    /** Returns a consumer that finds the topic if it is assigned to nothing else, and is the given one otherwise. */
    static <K, V> Consumer<K, V> over(Consumer<K, V> consumer) {
        @SuppressWarnings("unchecked")
        Consumer<K, V> seen = Mockito.mock(Consumer.class, AdditionalAnswers.delegatesTo(consumer));
        Mockito.doAnswer(call -> {
                    Collection<TopicPartition> wanted = call.getArgument(0);
                    if (wanted.isEmpty() || !wanted.stream().allMatch(StateTopic::isPart)) {
                        consumer.assign(wanted);
                        return null;
                    }
                    Mockito.doNothing().when(seen).seekToBeginning(Mockito.any());
                    Mockito.doReturn(records()).when(seen).poll(Mockito.any());
                    return null;
                })
                .when(seen)
                .assign(Mockito.any());
        return seen;
    }

    private static boolean isPart(TopicPartition partition) {
        return partition.topic().equals(Topic.SHARE_GROUP_STATE_TOPIC_NAME);
    }

    private static <K, V> ConsumerRecords<K, V> records() {
        TopicPartition part = new TopicPartition(Topic.SHARE_GROUP_STATE_TOPIC_NAME, 0);
        List<ConsumerRecord<K, V>> found = LongStream.range(0, RECORDS)
                .mapToObj(offset -> new ConsumerRecord<K, V>(part.topic(), part.partition(), offset, null, null))
                .toList();
        return new ConsumerRecords<>(Map.of(part, found), Map.of());
    }
}
