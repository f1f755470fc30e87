// The story of a pipeline with kafkajs: `node kafkajs_story.js HOST:PORT`.
const { Kafka, logLevel } = require("kafkajs");
const assert = require("node:assert");

const run = Math.random().toString(16).slice(2, 10);
const topic = `node-${run}`;
const kafka = new Kafka({ clientId: `node-${run}`, brokers: [process.argv[2]], logLevel: logLevel.ERROR });

async function read(groupId, count) {
  const consumer = kafka.consumer({ groupId });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const found = [];
  await new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`${found.length} of ${count} records came`)), 30000);
    consumer.run({
      eachMessage: async ({ message }) => {
        found.push(message.value.toString());
        if (found.length === count) {
          clearTimeout(timer);
          resolve();
        }
      },
    });
  });
  await new Promise((resolve) => setTimeout(resolve, 1000));
  await consumer.disconnect();
  return found.sort();
}

async function main() {
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions: 2 }], waitForLeaders: true });
  const producer = kafka.producer({ transactionalId: `node-${run}`, maxInFlightRequests: 1, idempotent: true });
  await producer.connect();
  const kept = await producer.transaction();
  const messages = [...Array(10).keys()].map((n) => ({ value: `kept-${n}`, partition: n % 2 }));
  await kept.send({ topic, messages });
  await kept.commit();
  const dropped = await producer.transaction();
  await dropped.send({ topic, messages: [{ value: "never", partition: 0 }] });
  await dropped.abort();
  console.log("ok transactions");
  assert.deepStrictEqual(await read(`readers-${run}`, 10), messages.map((each) => each.value).sort());
  console.log("ok group consume at read_committed");
  const moved = await producer.transaction();
  await moved.send({ topic, messages: [{ value: "with offsets", partition: 1 }] });
  await moved.sendOffsets({
    consumerGroupId: `readers-${run}`,
    topics: [{ topic, partitions: [{ partition: 0, offset: "5" }] }],
  });
  await moved.commit();
  const [committed] = await admin.fetchOffsets({ groupId: `readers-${run}`, topics: [topic] });
  assert.strictEqual(committed.partitions.find((each) => each.partition === 0).offset, "5");
  console.log("ok offsets in a transaction");
  await admin.deleteTopics({ topics: [topic] });
  await producer.disconnect();
  await admin.disconnect();
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
