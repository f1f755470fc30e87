// Requirements of docs/clients.md for a client in any language: correct retries, the partitioner, the checksum.

import { fileURLToPath } from "node:url";
import { randomBytes } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import grpc from "@grpc/grpc-js";
import protobuf from "protobufjs";

const PROTO = fileURLToPath(new URL("../../proto/", import.meta.url));
const root = new protobuf.Root();
root.resolvePath = (_, target) => PROTO + target.replace(PROTO, "");
root.loadSync("coordinator_api/v1/transaction.proto", { keepCase: true });

export const Records = root.lookupType("coordinator_api.v1.Records");
const RETRY = 1;
const REFRESH = 2;
const ATTEMPTS_MAX = 20;

/** The server refused a request: `code` has the reason, `errorClass` the right reaction. */
export class Refused extends Error {
  constructor(reply) {
    super(reply.error_message);
    this.code = reply.error_code;
    this.errorClass = reply.error_class;
  }
}

/**
 * Return the reply or item, or throw its protocol error. The gRPC status is for transport errors and defects only.
 *
 * A code with the class NONE (0) is a success: Produce answers so if it no longer knows the offset of a repeated batch.
 */
export function checked(reply) {
  if (reply.error_code && reply.error_class) throw new Refused(reply);
  return reply;
}

/** All unary methods of all services, over one connection. */
export class Connection {
  constructor(endpoint) {
    this.client = new grpc.Client(endpoint, grpc.credentials.createInsecure());
  }

  close() {
    this.client.close();
  }

  /**
   * Make one request, and retry it where that is right, with the same bytes and so the same request id.
   *
   * An attempt with a lost reply may have taken effect. Only a retry shows that.
   */
  async call(service, method, fields) {
    const { resolvedRequestType, resolvedResponseType } = root
      .lookupService(`coordinator_api.v1.${service}`)
      .methods[method].resolve();
    const header = { client_id: "node-example", request_id: randomBytes(16) };
    const request = resolvedRequestType.fromObject({ header, ...fields });
    for (let attempt = 1; ; attempt++) {
      let problem;
      try {
        const reply = await this.attempt(service, method, request, resolvedRequestType, resolvedResponseType);
        if (![RETRY, REFRESH].includes(reply.error_class)) return checked(reply);
        problem = new Refused(reply);
      } catch (error) {
        if (![grpc.status.UNAVAILABLE, grpc.status.DEADLINE_EXCEEDED].includes(error.code)) throw error;
        problem = error;
      }
      if (attempt === ATTEMPTS_MAX) throw problem;
      await pause(Math.min(1000, 20 * 2 ** attempt) * (0.5 + Math.random() / 2));
    }
  }

  attempt(service, method, request, requestType, responseType) {
    return new Promise((resolve, reject) => {
      this.client.makeUnaryRequest(
        `/coordinator_api.v1.${service}/${method}`,
        (message) => Buffer.from(requestType.encode(message).finish()),
        (bytes) => responseType.toObject(responseType.decode(bytes), { longs: BigInt, arrays: true, defaults: true }),
        request,
        new grpc.Metadata(),
        { deadline: Date.now() + 30_000 },
        (error, reply) => (error ? reject(error) : resolve(reply)),
      );
    });
  }
}

/** Return the partition of a key, as Kafka's default partitioner and the SDK choose it. */
export function partitionFor(key, partitionCount) {
  return (murmur2(key) & 0x7fffffff) % partitionCount;
}

export function murmur2(data) {
  const factor = 0x5bd1e995;
  let mixed = 0x9747b28c ^ data.length;
  const words = data.length >> 2;
  for (let i = 0; i < words; i++) {
    let word = Math.imul(data.readInt32LE(4 * i), factor);
    word = Math.imul(word ^ (word >>> 24), factor);
    mixed = Math.imul(mixed, factor) ^ word;
  }
  if (data.length & 3) {
    let rest = 0;
    for (let i = data.length - 1; i >= 4 * words; i--) rest = (rest << 8) | data[i];
    mixed = Math.imul(mixed ^ rest, factor);
  }
  mixed = Math.imul(mixed ^ (mixed >>> 13), factor);
  return mixed ^ (mixed >>> 15);
}

const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  for (let bit = 0; bit < 8; bit++) byte = byte & 1 ? (byte >>> 1) ^ 0x82f63b78 : byte >>> 1;
  return byte;
});

export function crc32c(data) {
  let crc = 0xffffffff;
  for (const byte of data) crc = TABLE[(crc ^ byte) & 0xff] ^ (crc >>> 8);
  return (crc ^ 0xffffffff) >>> 0;
}

/** Return the checksum of a batch: of the stored header from its attributes on, then of the payload. */
export function batchChecksum(batch) {
  const covered = Buffer.alloc(43);
  covered.writeInt16BE((batch.compression ?? 0) | (batch.is_transactional ? 16 : 0), 0);
  covered.writeInt32BE(batch.record_count - 1, 2);
  covered.writeBigInt64BE(BigInt(batch.base_timestamp_ms), 6);
  covered.writeBigInt64BE(BigInt(batch.max_timestamp_ms), 14);
  covered.writeBigInt64BE(BigInt(batch.producer_id), 22);
  covered.writeInt16BE(batch.producer_epoch, 30);
  covered.writeInt32BE(batch.base_sequence, 32);
  covered.writeInt32BE(batch.record_count, 36);
  covered.writeUInt8(batch.encoding, 40);
  covered.writeUInt8(1, 41); // format version; the byte behind it stays 0
  return crc32c(Buffer.concat([covered, batch.payload]));
}
