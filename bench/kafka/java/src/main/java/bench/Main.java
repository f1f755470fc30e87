package bench;

/** Runs one load program: the first argument is its name, the others its options. Prints a {@code Run} as JSON. */
public final class Main {
    public static void main(String[] arguments) throws Exception {
        Options options = new Options(arguments, 1);
        switch (arguments[0]) {
            case "topic" -> Clients.createTopic(options);
            case "delete-topic" -> Clients.deleteTopic(options);
            case "transactions" -> Window.print(Clients.transactions(options));
            case "produce" -> Window.print(Clients.produce(options));
            case "fill" -> Window.print(Clients.fill(options));
            case "consume" -> Window.print(Clients.consume(options));
            case "offset-commits" -> Window.print(Clients.offsetCommits(options));
            case "share-fill" -> Window.print(Share.fill(options));
            case "share-acknowledge" -> Window.print(Share.acknowledge(options));
            case "share-latency" -> Window.print(Share.latency(options));
            case "lines" -> Window.print(WordCount.fill(options));
            case "word-count" -> Window.print(WordCount.count(options));
            case "raw-transactions" -> Window.print(Raw.transactions(options));
            case "raw-init" -> Window.print(Raw.initProducerIds(options));
            case "open" -> Window.print(Raw.open(options));
            case "probe" -> Window.print(Raw.probe(options));
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        System.exit(0);
    }

    private Main() {}
}
