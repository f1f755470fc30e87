// The story of a pipeline with sarama: `sarama_story HOST:PORT`.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const wait = 60 * time.Second

func check(err error) {
	if err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
}

func require(isTrue bool, format string, values ...any) {
	if !isTrue {
		check(fmt.Errorf(format, values...))
	}
}

func step(name string) { fmt.Println("ok " + name) }

func config(transactionalID string) *sarama.Config {
	made := sarama.NewConfig()
	made.Version = sarama.MaxVersion
	made.Consumer.IsolationLevel = sarama.ReadCommitted
	made.Consumer.Offsets.Initial = sarama.OffsetOldest
	made.Consumer.Offsets.AutoCommit.Enable = false
	made.Producer.Return.Successes = true
	made.Producer.Partitioner = sarama.NewManualPartitioner
	if transactionalID != "" {
		made.Producer.Idempotent = true
		made.Producer.RequiredAcks = sarama.WaitForAll
		made.Producer.Transaction.ID = transactionalID
		made.Net.MaxOpenRequests = 1
	}
	return made
}

// collector collects the values of a group's records until the wanted number is there.
type collector struct {
	mutex  sync.Mutex
	wanted int
	found  []string
	done   func()
}

func (*collector) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*collector) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (all *collector) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, isOpen := <-claim.Messages():
			if !isOpen {
				return nil
			}
			session.MarkMessage(message, "")
			all.mutex.Lock()
			all.found = append(all.found, string(message.Value))
			if len(all.found) == all.wanted {
				session.Commit()
				time.AfterFunc(time.Second, all.done)
			}
			all.mutex.Unlock()
		case <-session.Context().Done():
			return nil
		}
	}
}

// read returns the values of a topic in order, read by a group; one second more shows that no others come.
func read(client sarama.Client, group, topic string, count int) []string {
	reader, err := sarama.NewConsumerGroupFromClient(group, client)
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	all := &collector{wanted: count, done: cancel}
	for ctx.Err() == nil {
		if err := reader.Consume(ctx, []string{topic}, all); err != nil && !errors.Is(err, context.Canceled) {
			check(err)
		}
	}
	check(reader.Close())
	require(len(all.found) == count, "%d of %d records came", len(all.found), count)
	sort.Strings(all.found)
	return all.found
}

func send(producer sarama.SyncProducer, topic, value string, partition int32) {
	_, _, err := producer.SendMessage(
		&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(value), Partition: partition})
	check(err)
}

func main() {
	servers := []string{os.Args[1]}
	run := fmt.Sprintf("%x", time.Now().UnixNano())
	topic, group, id := "sarama-"+run, "readers-"+run, "writer-"+run

	client, err := sarama.NewClient(servers, config(""))
	check(err)
	admin, err := sarama.NewClusterAdminFromClient(client)
	check(err)
	check(admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 1}, false))
	step("create a topic")

	producer, err := sarama.NewSyncProducer(servers, config(id))
	check(err)
	check(producer.BeginTxn())
	var kept []string
	for number := range 10 {
		kept = append(kept, fmt.Sprintf("kept-%d", number))
		send(producer, topic, kept[number], int32(number%2))
	}
	check(producer.CommitTxn())
	check(producer.BeginTxn())
	send(producer, topic, "never", 0)
	check(producer.AbortTxn())
	step("transactions")

	found := read(client, group, topic, 10)
	require(fmt.Sprint(found) == fmt.Sprint(kept), "the group read %v", found)
	step("group consume at read_committed")

	check(producer.BeginTxn())
	send(producer, topic, "with offsets", 1)
	metadata := "5"
	moved := []*sarama.PartitionOffsetMetadata{{Partition: 0, Offset: 3, LeaderEpoch: -1, Metadata: &metadata}}
	check(producer.AddOffsetsToTxn(map[string][]*sarama.PartitionOffsetMetadata{topic: moved}, group))
	check(producer.CommitTxn())
	offsets, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0, 1}})
	check(err)
	require(offsets.GetBlock(topic, 0).Offset == 3, "the offset is %d", offsets.GetBlock(topic, 0).Offset)
	step("offsets in a transaction")

	newer, err := sarama.NewSyncProducer(servers, config(id))
	check(err)
	check(newer.BeginTxn())
	send(newer, topic, "newer", 0)
	err = producer.BeginTxn()
	if err == nil {
		_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder("zombie")})
	}
	if err == nil {
		err = producer.CommitTxn()
	}
	require(err != nil, "a zombie committed")
	check(newer.CommitTxn())
	found = read(client, "others-"+run, topic, 12)
	require(fmt.Sprint(found[10:]) == "[newer with offsets]", "the group read %v", found)
	step("a zombie is fenced")

	check(admin.DeleteTopic(topic))
	check(newer.Close())
	step("delete the topic")
}
