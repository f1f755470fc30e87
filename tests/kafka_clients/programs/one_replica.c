/* Loaded before librdkafka: topics of its tests, which want three replicas in places, get one. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

typedef void *NewTopic(const char *, int, int, char *, size_t);

void *rd_kafka_NewTopic_new(const char *topic, int partitions, int replicas, char *error, size_t size) {
    NewTopic *make = (NewTopic *)dlsym(RTLD_NEXT, "rd_kafka_NewTopic_new");
    return make(topic, partitions, replicas == 3 ? 1 : replicas, error, size);
}
