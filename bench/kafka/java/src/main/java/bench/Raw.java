package bench;

import java.io.BufferedInputStream;
import java.io.BufferedReader;
import java.io.Closeable;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.EndTxnRequestData;
import org.apache.kafka.common.message.EndTxnResponseData;
import org.apache.kafka.common.message.InitProducerIdRequestData;
import org.apache.kafka.common.message.InitProducerIdResponseData;
import org.apache.kafka.common.message.ProduceRequestData;
import org.apache.kafka.common.message.ProduceResponseData;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.EndTxnRequest;
import org.apache.kafka.common.requests.EndTxnResponse;
import org.apache.kafka.common.requests.InitProducerIdRequest;
import org.apache.kafka.common.requests.InitProducerIdResponse;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.requests.ProduceResponse;
import org.apache.kafka.common.requests.RequestHeader;

/** Requests over blocking sockets, one connection per producer and no client state: what the broker itself costs. */
final class Raw {
    private static final int TIMEOUT_MS = 600_000;
    private static final int PATIENCE_MS = 180_000;
    private static final int WAITS_MAX = 30_000;

    static Map<String, Object> initProducerIds(Options options) throws Exception {
        makeTopicOfStates(options);
        String prefix = "new-" + System.nanoTime() + '-';
        AtomicLong numbers = new AtomicLong();
        return Workers.run(options.number("in-flight"), options, number -> {
            Connection connection = new Connection(options.bootstrap());
            return worker(connection, () -> connection.init(prefix + numbers.getAndIncrement()));
        });
    }

    /** Produce to all partitions and EndTxn: the two requests of the protocol's second version. */
    static Map<String, Object> transactions(Options options) throws Exception {
        makeTopicOfStates(options);
        byte[] value = options.value();
        String topic = options.text("topic"), prefix = "raw-" + System.nanoTime() + '-';
        boolean committed = options.flag("committed");
        return Workers.run(options.number("producers"), options, number -> {
            Connection connection = new Connection(options.bootstrap());
            Identity identity = connection.init(prefix + number);
            return worker(connection, () -> {
                connection.produce(identity, topic, value);
                connection.end(identity, committed);
            });
        });
    }

    /** Leaves many ids and some open transactions; notes the open ones: id, producer id, epoch. */
    static Map<String, Object> open(Options options) throws Exception {
        int ids = options.number("ids"), open = options.number("open");
        makeTopicOfStates(options);
        List<String> notes = new ArrayList<>();
        Window window = new Window(options.brokerProcess());
        try (Connection connection = new Connection(options.bootstrap())) {
            for (int number = 0; number < ids; number++) {
                Identity identity = connection.init("recovery-" + number);
                if (number >= open) continue;
                connection.produce(identity, options.text("topic"), new byte[100]);
                notes.add(identity.transactionalId + ' ' + identity.producerId + ' ' + identity.epoch);
            }
        }
        Files.write(Path.of(options.text("notes")), notes);
        return window.close(ids);
    }

    /** Waits to be told when a broker was started, then tries until an open transaction can be committed. */
    static Map<String, Object> probe(Options options) throws Exception {
        String[] note = Files.readAllLines(Path.of(options.text("notes"))).get(0).split(" ");
        Identity identity = new Identity(note[0]);
        identity.producerId = Long.parseLong(note[1]);
        identity.epoch = Short.parseShort(note[2]);
        System.out.println("ready");
        long started = Long.parseLong(new BufferedReader(new InputStreamReader(System.in)).readLine().trim());
        while (System.currentTimeMillis() - started < PATIENCE_MS) {
            try (Connection connection = new Connection(options.bootstrap())) {
                connection.end(identity, true);
                Map<String, Object> run = new HashMap<>();
                run.put("figure", (double) (System.currentTimeMillis() - started));
                run.put("operations", 1);
                return run;
            } catch (IOException | org.apache.kafka.common.KafkaException notYet) {
                Thread.sleep(5);
            }
        }
        throw new IllegalStateException("no commit worked for three minutes");
    }

    /** FindCoordinator, which nothing here sends, makes the topic of the transactions' states. */
    private static void makeTopicOfStates(Options options) throws Exception {
        try (Admin admin = Admin.create(options.client())) {
            admin.fenceProducers(List.of("bench-makes-topic-of-states")).all().get();
        }
    }

    private interface Step {
        void perform() throws Exception;
    }

    private static Workers.Worker worker(Connection connection, Step step) {
        return new Workers.Worker() {
            @Override
            public void perform() throws Exception { step.perform(); }

            @Override
            public void close() throws Exception { connection.close(); }
        };
    }

    private static final class Identity {
        final String transactionalId;
        long producerId;
        short epoch;

        Identity(String transactionalId) { this.transactionalId = transactionalId; }
    }

    private static final class Connection implements Closeable {
        private final Socket socket;
        private final DataInputStream in;
        private final OutputStream out;
        private int correlation, waits;

        Connection(String bootstrap) throws IOException {
            String[] address = bootstrap.split(":");
            socket = new Socket(address[0], Integer.parseInt(address[1]));
            socket.setTcpNoDelay(true);
            socket.setSoTimeout(30_000);
            in = new DataInputStream(new BufferedInputStream(socket.getInputStream(), 65_536));
            out = socket.getOutputStream();
        }

        Identity init(String transactionalId) throws Exception {
            InitProducerIdRequestData data = new InitProducerIdRequestData()
                    .setTransactionalId(transactionalId).setTransactionTimeoutMs(TIMEOUT_MS);
            while (true) {
                InitProducerIdResponseData reply = ((InitProducerIdResponse)
                        call(new InitProducerIdRequest.Builder(data).build((short) 5), ApiKeys.INIT_PRODUCER_ID)).data();
                if (passes(Errors.forCode(reply.errorCode()))) continue;
                Identity identity = new Identity(transactionalId);
                identity.producerId = reply.producerId();
                identity.epoch = reply.producerEpoch();
                return identity;
            }
        }

        void produce(Identity identity, String topic, byte[] value) throws Exception {
            while (true) {
                ProduceRequestData.TopicProduceData batches = new ProduceRequestData.TopicProduceData().setName(topic);
                for (int partition = 0; partition < Clients.PARTITIONS; partition++) {
                    SimpleRecord record = new SimpleRecord(System.currentTimeMillis(), null, value);
                    batches.partitionData().add(new ProduceRequestData.PartitionProduceData().setIndex(partition)
                            .setRecords(MemoryRecords.withTransactionalRecords(
                                    Compression.NONE, identity.producerId, identity.epoch, 0, record)));
                }
                ProduceRequestData data = new ProduceRequestData()
                        .setAcks((short) -1).setTimeoutMs(30_000).setTransactionalId(identity.transactionalId);
                data.topicData().add(batches);
                ProduceResponse reply = (ProduceResponse)
                        call(new ProduceRequest.Builder((short) 12, (short) 12, data).build((short) 12), ApiKeys.PRODUCE);
                if (!passes(firstError(reply))) return;
            }
        }

        void end(Identity identity, boolean committed) throws Exception {
            EndTxnRequestData data = new EndTxnRequestData().setTransactionalId(identity.transactionalId)
                    .setProducerId(identity.producerId).setProducerEpoch(identity.epoch).setCommitted(committed);
            while (true) {
                EndTxnResponseData reply = ((EndTxnResponse)
                        call(new EndTxnRequest.Builder(data, true).build((short) 5), ApiKeys.END_TXN)).data();
                if (passes(Errors.forCode(reply.errorCode()))) continue;
                identity.producerId = reply.producerId();
                identity.epoch = reply.producerEpoch();
                return;
            }
        }

        /** Whether to ask again: the markers of the transaction before are not written yet, or a shard is loading. */
        private boolean passes(Errors error) throws InterruptedException {
            switch (error) {
                case NONE:
                    waits = 0;
                    return false;
                case CONCURRENT_TRANSACTIONS, NOT_ENOUGH_REPLICAS, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE,
                        COORDINATOR_LOAD_IN_PROGRESS:
                    if (++waits > WAITS_MAX) throw error.exception();
                    Thread.sleep(1);
                    return true;
                default:
                    throw error.exception();
            }
        }

        private static Errors firstError(ProduceResponse reply) {
            for (ProduceResponseData.TopicProduceResponse topic : reply.data().responses()) {
                for (ProduceResponseData.PartitionProduceResponse partition : topic.partitionResponses()) {
                    if (partition.errorCode() != 0) return Errors.forCode(partition.errorCode());
                }
            }
            return Errors.NONE;
        }

        private AbstractResponse call(AbstractRequest request, ApiKeys key) throws IOException {
            RequestHeader header = new RequestHeader(key, request.version(), "bench", correlation++);
            ByteBuffer body = request.serializeWithHeader(header);
            byte[] frame = new byte[4 + body.remaining()];
            ByteBuffer.wrap(frame).putInt(body.remaining()).put(body.duplicate());
            out.write(frame);
            byte[] reply = new byte[in.readInt()];
            in.readFully(reply);
            return AbstractResponse.parseResponse(ByteBuffer.wrap(reply), header);
        }

        @Override
        public void close() throws IOException { socket.close(); }
    }

    private Raw() {}
}
