package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	mathrand "math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	api "txn-coordinator-example/pb/coordinator_api/v1"
)

const attemptsMax = 20

// Refused is the refusal of a request: Code has the reason, Class the right reaction.
type Refused struct {
	Code    api.ErrorCode
	Class   api.ErrorClass
	Message string
}

func (refused *Refused) Error() string {
	return fmt.Sprintf("the server refused with error %d: %s", refused.Code, refused.Message)
}

// verdict is what every reply, and every item that can fail by itself, has.
type verdict interface {
	GetErrorCode() api.ErrorCode
	GetErrorClass() api.ErrorClass
	GetErrorMessage() string
}

// check returns the protocol error of a reply or item. A code with the class NONE is a success: Produce answers so if
// it no longer knows the offset of a repeated batch.
func check(found verdict) error {
	if found.GetErrorCode() == 0 || found.GetErrorClass() == api.ErrorClass_ERROR_CLASS_NONE {
		return nil
	}
	return &Refused{found.GetErrorCode(), found.GetErrorClass(), found.GetErrorMessage()}
}

// Connection makes unary calls to one server.
type Connection struct{ client *grpc.ClientConn }

func connect(endpoint string) (*Connection, error) {
	client, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	return &Connection{client}, err
}

// header returns the header of a new request. All attempts of the request carry the same id.
func header() *api.RequestHeader {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	return &api.RequestHeader{ClientId: "go-example", RequestId: id}
}

// call makes one request, and repeats the same message where that is right. An attempt with a lost reply may have taken
// effect; only a repetition shows that.
func (connection *Connection) call(service, method string, request proto.Message, reply interface {
	proto.Message
	verdict
}) error {
	for attempt := 1; ; attempt++ {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		problem := connection.client.Invoke(ctx, "/coordinator_api.v1."+service+"/"+method, request, reply)
		cancel()
		if problem == nil {
			problem = check(reply)
		}
		if problem == nil || !mayBeRepeated(problem) || attempt == attemptsMax {
			return problem
		}
		pause := min(time.Second, 20*time.Millisecond<<attempt)
		time.Sleep(time.Duration(float64(pause) * (0.5 + mathrand.Float64()/2)))
		proto.Reset(reply)
	}
}

func mayBeRepeated(problem error) bool {
	var refused *Refused
	if errors.As(problem, &refused) {
		return refused.Class == api.ErrorClass_ERROR_CLASS_RETRY || refused.Class == api.ErrorClass_ERROR_CLASS_REFRESH
	}
	code := status.Code(problem)
	return code == codes.Unavailable || code == codes.DeadlineExceeded
}

// partitionFor returns the partition of a key, as Kafka's default partitioner and the SDK choose it.
func partitionFor(key []byte, partitionCount int) int32 {
	return int32(int(murmur2(key)&0x7fffffff) % partitionCount)
}

func murmur2(data []byte) uint32 {
	const factor = 0x5bd1e995
	mixed := 0x9747b28c ^ uint32(len(data))
	for ; len(data) >= 4; data = data[4:] {
		word := binary.LittleEndian.Uint32(data) * factor
		mixed = mixed*factor ^ (word^word>>24)*factor
	}
	if len(data) > 0 {
		var rest uint32
		for i := len(data) - 1; i >= 0; i-- {
			rest = rest<<8 | uint32(data[i])
		}
		mixed = (mixed ^ rest) * factor
	}
	mixed = (mixed ^ mixed>>13) * factor
	return mixed ^ mixed>>15
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// batchChecksum returns the checksum of a batch: of the stored header from its attributes on, then of the payload.
func batchChecksum(batch *api.RecordBatch) uint32 {
	attributes := uint16(batch.Compression)
	if batch.IsTransactional {
		attributes |= 16
	}
	covered := binary.BigEndian.AppendUint16(nil, attributes)
	covered = binary.BigEndian.AppendUint32(covered, uint32(batch.RecordCount-1))
	covered = binary.BigEndian.AppendUint64(covered, uint64(batch.BaseTimestampMs))
	covered = binary.BigEndian.AppendUint64(covered, uint64(batch.MaxTimestampMs))
	covered = binary.BigEndian.AppendUint64(covered, uint64(batch.GetProducerId()))
	covered = binary.BigEndian.AppendUint16(covered, uint16(batch.GetProducerEpoch()))
	covered = binary.BigEndian.AppendUint32(covered, uint32(batch.GetBaseSequence()))
	covered = binary.BigEndian.AppendUint32(covered, uint32(batch.RecordCount))
	covered = append(covered, byte(batch.Encoding), 1, 0) // format version 1, then a byte that stays 0
	return crc32.Update(crc32.Checksum(covered, castagnoli), castagnoli, batch.Payload)
}
