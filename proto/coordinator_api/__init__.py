"""The gRPC wire of the coordinator and its stored records: protobuf files with the code generated from them beside."""
