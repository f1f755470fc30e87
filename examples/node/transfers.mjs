// A transactional producer and a reader in Node.js, without an SDK: the protocol of docs/clients.md as a program.
//
//     cd examples/node && npm install --no-package-lock && node transfers.mjs 127.0.0.1:7070 transfers
//
// It commits one transaction with Produce and EndTxn, aborts another, commits a third with Transact, and then reads the
// committed records. Each printed line is one record: partition, offset, key, value.

import { Connection, Records, Refused, batchChecksum, checked, partitionFor } from "./wire.mjs";

const TRANSACTIONAL_ID = "node-bank";
const RECORDS_V1 = 1;
const TOPIC_ALREADY_EXISTS = 36;

/** A producer: its identity, and the number of records that it sent to each partition with it. */
class Producer {
  constructor(connection, topic, partitionCount) {
    Object.assign(this, { connection, topic, partitionCount, sequences: new Map() });
  }

  /** Take over the transactional id. Earlier producers with it are fenced, and their open transaction is aborted. */
  async start() {
    const fields = { transactional_id: TRANSACTIONAL_ID, transaction_timeout_ms: 60_000 };
    this.goOnAs(await this.connection.call("TransactionService", "InitProducerId", fields));
  }

  /** Store the identity of the next transaction, under which sequences begin at 0 again. */
  goOnAs({ producer_id, producer_epoch }) {
    Object.assign(this, { producerId: producer_id, producerEpoch: producer_epoch });
    this.sequences.clear();
  }

  /** Return a batch of one record for the partition of its key, with the next sequence number. */
  batch(key, value) {
    const partition = partitionFor(Buffer.from(key), this.partitionCount);
    const sequence = this.sequences.get(partition) ?? 0;
    this.sequences.set(partition, (sequence + 1) % 2 ** 31);
    const now = Date.now();
    const record = { key: Buffer.from(key), value: Buffer.from(value), timestamp_ms: now };
    const batch = {
      record_count: 1,
      base_timestamp_ms: now,
      max_timestamp_ms: now,
      producer_id: this.producerId.toString(),
      producer_epoch: this.producerEpoch,
      base_sequence: sequence,
      is_transactional: true,
      encoding: RECORDS_V1,
      payload: Buffer.from(Records.encode(Records.fromObject({ records: [record] })).finish()),
    };
    return { topic: this.topic, partition, batch: { ...batch, crc32c: batchChecksum(batch) } };
  }

  async produce(key, value) {
    const fields = { transactional_id: TRANSACTIONAL_ID, batches: [this.batch(key, value)] };
    checked((await this.connection.call("LogService", "Produce", fields)).results[0]);
  }

  async end(committed) {
    this.goOnAs(await this.connection.call("TransactionService", "EndTxn", { ...this.identity(), committed }));
  }

  /** Commit a transaction in one request. */
  async transact(records) {
    const batches = records.map(([key, value]) => this.batch(key, value));
    const fields = { ...this.identity(), batches, committed: true };
    this.goOnAs(await this.connection.call("TransactionService", "Transact", fields));
  }

  identity() {
    return {
      transactional_id: TRANSACTIONAL_ID,
      producer_id: this.producerId.toString(),
      producer_epoch: this.producerEpoch,
    };
  }
}

/** Yield the committed records of a partition, up to its present last stable offset. */
async function* committedRecords(connection, topic, partition) {
  for (let offset = 0n; ; ) {
    const fields = { partitions: [{ topic, partition, fetch_offset: offset.toString() }] };
    const found = checked((await connection.call("LogService", "Fetch", fields)).results[0]);
    for (const batch of found.batches) {
      if (batch.encoding !== RECORDS_V1 || batch.compression) throw new Error("an encoding this example cannot read");
      const { records } = Records.decode(batch.payload);
      // The server returns whole batches: the first one may begin before the requested offset.
      for (const [i, record] of records.entries()) {
        if (batch.base_offset + BigInt(i) >= offset) yield { offset: batch.base_offset + BigInt(i), ...record };
      }
    }
    // The server returns the next offset, because markers and hidden records have offsets, too.
    offset = found.next_offset;
    if (offset >= found.last_stable_offset) return;
  }
}

async function main(endpoint, topic) {
  const connection = new Connection(endpoint);
  try {
    const created = await connection.call("LogService", "CreateTopics", { topics: [{ name: topic, partition_count: 2 }] });
    if (created.results[0].error_code !== TOPIC_ALREADY_EXISTS) checked(created.results[0]);
    const producer = new Producer(connection, topic, 2);
    await producer.start();
    await producer.produce("alice", "-30");
    await producer.produce("bob", "30");
    await producer.end(true);
    await producer.produce("alice", "-999");
    await producer.end(false);
    await producer.transact([
      ["alice", "-5"],
      ["carol", "5"],
    ]);
    for (const partition of [0, 1]) {
      for await (const { offset, key, value } of committedRecords(connection, topic, partition)) {
        console.log(`${partition} ${offset} ${key} ${value}`);
      }
    }
  } catch (error) {
    if (error instanceof Refused) console.error(`the server refused with error ${error.code}: ${error.message}`);
    else if (error.details) console.error(`no answer from ${endpoint}: ${error.details}`);
    else throw error;
    process.exitCode = 1;
  } finally {
    connection.close();
  }
}

const [endpoint = "127.0.0.1:7070", topic = "transfers"] = process.argv.slice(2);
await main(endpoint, topic);
