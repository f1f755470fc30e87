// A transactional producer and a reader in Go, without an SDK: the protocol of docs/clients.md as a program.
//
//	cd examples/go
//	go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.10
//	mkdir -p pb
//	protoc --proto_path=../../proto --go_out=paths=source_relative:pb ../../proto/coordinator_api/v1/*.proto
//	go run . 127.0.0.1:7070 transfers
//
// It commits one transaction with Produce and EndTxn, aborts another, commits a third with Transact, and then reads the
// committed records. Each printed line is one record: partition, offset, key, value.
package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"google.golang.org/protobuf/proto"

	api "txn-coordinator-example/pb/coordinator_api/v1"
)

const transactionalID = "go-bank"

// Producer has an identity, and the number of records that it sent to each partition with it.
type Producer struct {
	connection     *Connection
	topic          string
	partitionCount int
	producerID     int64
	producerEpoch  int32
	sequences      map[int32]int32
}

// start takes over the transactional id. Earlier producers with it are fenced, and their open transaction is aborted.
func (producer *Producer) start() error {
	request := &api.InitProducerIdRequest{
		Header:               header(),
		TransactionalId:      proto.String(transactionalID),
		TransactionTimeoutMs: 60_000,
	}
	reply := &api.InitProducerIdResponse{}
	if err := producer.connection.call("TransactionService", "InitProducerId", request, reply); err != nil {
		return err
	}
	producer.goOnAs(reply.ProducerId, reply.ProducerEpoch)
	return nil
}

// goOnAs stores the identity of the next transaction, under which sequences begin at 0 again.
func (producer *Producer) goOnAs(id int64, epoch int32) {
	producer.producerID, producer.producerEpoch, producer.sequences = id, epoch, map[int32]int32{}
}

// batch returns a batch of one record for the partition of its key, with the next sequence number.
func (producer *Producer) batch(key, value string) (*api.PartitionBatch, error) {
	partition := partitionFor([]byte(key), producer.partitionCount)
	sequence := producer.sequences[partition]
	producer.sequences[partition] = sequence + 1
	now := time.Now().UnixMilli()
	records := &api.Records{Records: []*api.Record{{Key: []byte(key), Value: []byte(value), TimestampMs: now}}}
	payload, err := proto.Marshal(records)
	batch := &api.RecordBatch{
		RecordCount:     1,
		BaseTimestampMs: now,
		MaxTimestampMs:  now,
		ProducerId:      proto.Int64(producer.producerID),
		ProducerEpoch:   proto.Int32(producer.producerEpoch),
		BaseSequence:    proto.Int32(sequence),
		IsTransactional: true,
		Encoding:        api.Encoding_ENCODING_RECORDS_V1,
		Payload:         payload,
	}
	batch.Crc32C = proto.Uint32(batchChecksum(batch))
	return &api.PartitionBatch{Topic: producer.topic, Partition: partition, Batch: batch}, err
}

func (producer *Producer) produce(key, value string) error {
	batch, err := producer.batch(key, value)
	if err != nil {
		return err
	}
	request := &api.ProduceRequest{
		Header: header(), TransactionalId: proto.String(transactionalID), Batches: []*api.PartitionBatch{batch},
	}
	reply := &api.ProduceResponse{}
	if err := producer.connection.call("LogService", "Produce", request, reply); err != nil {
		return err
	}
	return check(reply.Results[0])
}

func (producer *Producer) end(committed bool) error {
	request := &api.EndTxnRequest{
		Header:          header(),
		TransactionalId: transactionalID,
		ProducerId:      producer.producerID,
		ProducerEpoch:   producer.producerEpoch,
		Committed:       proto.Bool(committed),
	}
	reply := &api.EndTxnResponse{}
	if err := producer.connection.call("TransactionService", "EndTxn", request, reply); err != nil {
		return err
	}
	producer.goOnAs(reply.GetProducerId(), reply.GetProducerEpoch())
	return nil
}

// transact commits a transaction in one request.
func (producer *Producer) transact(records [][2]string) error {
	request := &api.TransactRequest{
		Header:          header(),
		TransactionalId: transactionalID,
		ProducerId:      producer.producerID,
		ProducerEpoch:   producer.producerEpoch,
		Committed:       proto.Bool(true),
	}
	for _, record := range records {
		batch, err := producer.batch(record[0], record[1])
		if err != nil {
			return err
		}
		request.Batches = append(request.Batches, batch)
	}
	reply := &api.TransactResponse{}
	if err := producer.connection.call("TransactionService", "Transact", request, reply); err != nil {
		return err
	}
	producer.goOnAs(reply.ProducerId, reply.ProducerEpoch)
	return nil
}

// printCommitted prints the committed records of a partition, up to its present last stable offset.
func printCommitted(connection *Connection, topic string, partition int32) error {
	for offset := int64(0); ; {
		wanted := &api.FetchPartition{Topic: topic, Partition: partition, FetchOffset: offset}
		request := &api.FetchRequest{Header: header(), Partitions: []*api.FetchPartition{wanted}}
		reply := &api.FetchResponse{}
		if err := connection.call("LogService", "Fetch", request, reply); err != nil {
			return err
		}
		found := reply.Results[0]
		if err := check(found); err != nil {
			return err
		}
		for _, batch := range found.Batches {
			if batch.Encoding != api.Encoding_ENCODING_RECORDS_V1 || batch.Compression != 0 {
				return errors.New("an encoding that this example cannot read")
			}
			records := &api.Records{}
			if err := proto.Unmarshal(batch.Payload, records); err != nil {
				return err
			}
			for i, record := range records.Records {
				// The server returns whole batches: the first one may begin before the requested offset.
				if at := batch.BaseOffset + int64(i); at >= offset {
					fmt.Println(partition, at, string(record.Key), string(record.Value))
				}
			}
		}
		// The server returns the next offset, because markers and hidden records have offsets, too.
		offset = found.NextOffset
		if offset >= found.LastStableOffset {
			return nil
		}
	}
}

func run(endpoint, topic string) error {
	connection, err := connect(endpoint)
	if err != nil {
		return err
	}
	defer func() { _ = connection.client.Close() }()
	created := &api.CreateTopicsResponse{}
	wanted := &api.CreateTopicsRequest{Header: header(), Topics: []*api.NewTopic{{Name: topic, PartitionCount: 2}}}
	if err := connection.call("LogService", "CreateTopics", wanted, created); err != nil {
		return err
	}
	if result := created.Results[0]; result.ErrorCode != api.ErrorCode_ERROR_CODE_TOPIC_ALREADY_EXISTS {
		if err := check(result); err != nil {
			return err
		}
	}
	producer := &Producer{connection: connection, topic: topic, partitionCount: 2}
	steps := []func() error{
		producer.start,
		func() error { return producer.produce("alice", "-30") },
		func() error { return producer.produce("bob", "30") },
		func() error { return producer.end(true) },
		func() error { return producer.produce("alice", "-999") },
		func() error { return producer.end(false) },
		func() error { return producer.transact([][2]string{{"alice", "-5"}, {"carol", "5"}}) },
		func() error { return printCommitted(connection, topic, 0) },
		func() error { return printCommitted(connection, topic, 1) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	endpoint, topic := "127.0.0.1:7070", "transfers"
	if len(os.Args) > 1 {
		endpoint = os.Args[1]
	}
	if len(os.Args) > 2 {
		topic = os.Args[2]
	}
	if err := run(endpoint, topic); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
