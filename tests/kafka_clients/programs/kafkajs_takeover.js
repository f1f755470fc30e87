// Transactions of a producer that knows one of two servers: `node kafkajs_takeover.js HOST:PORT TOPIC SECONDS`.
// Prints "acknowledged VALUE" after each commit.
const { Kafka, logLevel } = require("kafkajs");

const [address, topic, seconds] = process.argv.slice(2);
const retry = { initialRetryTime: 100, maxRetryTime: 1000, retries: 60 };
const kafka = new Kafka({ clientId: "node", brokers: [address], logLevel: logLevel.ERROR, retry });
const pause = () => new Promise((resolve) => setTimeout(resolve, 100));

async function isCommitted(producer, value) {
  let transaction;
  try {
    transaction = await producer.transaction();
    await transaction.send({ topic, messages: [{ value, partition: 0 }] });
    await transaction.commit();
    console.log(`acknowledged ${value}`);
    return true;
  } catch (failure) {
    console.log(`failed ${value}: ${failure.message}`);
    if (transaction !== undefined && transaction.isActive()) {
      await transaction.abort();
    }
    return false;
  }
}

async function main() {
  const settings = { transactionalId: "node", maxInFlightRequests: 1, idempotent: true, metadataMaxAge: 2000 };
  const producer = kafka.producer(settings);
  await producer.connect();
  const endsMs = Date.now() + Number(seconds) * 1000;
  for (let number = 0; Date.now() < endsMs; number++) {
    for (let attempt = 0; !(await isCommitted(producer, `${number}/${attempt}`)); attempt++) {
      await pause();
    }
    await pause();
  }
  await producer.disconnect();
}

main().catch((failure) => {
  console.error(String(failure));
  process.exit(1);
});
