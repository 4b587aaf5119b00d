import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Clients at work: an idempotent producer, a transactional one that aborts every fourth transaction, and a group of two
 * consumers, until standard input ends. Arguments: servers, file of what was acknowledged, file of what the group read.
 *
 * A line of standard input is a command, its words separated by tabs, and is answered with a line:
 * "topic NAME": write there, too. "forget NAME": no more, while it is paused. "pause": when it is answered, nothing is on its way. "resume".
 * "read FILE TOPIC...": all that is committed in topics, into a file.
 */
public final class Load {
    private static final int RECORDS = 10; // that a producer has on its way, at most
    private static final long PAUSE_MS = 200; // most of the time brokers have nothing to do
    private static final int PATIENCE_MS = 600_000; // what a client bears without telling

    private final String servers;
    private final PrintWriter acknowledged;
    private final PrintWriter group;
    private final List<String> topics = new CopyOnWriteArrayList<>();
    private final ReentrantReadWriteLock turns = new ReentrantReadWriteLock(true);
    private volatile boolean ended;

    private Load(String servers, Path acknowledged, Path group) throws IOException {
        this.servers = servers;
        this.acknowledged = new PrintWriter(Files.newBufferedWriter(acknowledged), true);
        this.group = new PrintWriter(Files.newBufferedWriter(group), true);
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // where logging goes
        Load load = new Load(args[0], Path.of(args[1]), Path.of(args[2]));
        List<Thread> threads = new ArrayList<>();
        threads.add(new Thread(() -> load.guard("producer", load::produce)));
        threads.add(new Thread(() -> load.guard("transactions", load::transact)));
        for (int i = 0; i < 2; i++) threads.add(new Thread(() -> load.guard("group", load::consume)));
        for (Thread thread : threads) {
            thread.setDaemon(true);
            thread.start();
        }
        load.obey(answers);
        load.ended = true;
        for (Thread thread : threads) thread.join(10_000);
        System.exit(0);
    }

    // --- commands ---

    private void obey(PrintStream answers) throws IOException {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split("\t");
            String answer = "done";
            switch (words[0]) {
                case "topic" -> topics.add(words[1]);
                case "forget" -> topics.remove(words[1]);
                case "pause" -> turns.writeLock().lock();
                case "resume" -> turns.writeLock().unlock();
                case "read" -> answer = read(Path.of(words[1]), Arrays.asList(words).subList(2, words.length));
                default -> answer = "unknown command " + words[0];
            }
            answers.println(answer);
            answers.flush();
        }
    }

    private String read(Path file, List<String> names) throws IOException {
        Properties properties = consuming("reader");
        properties.put(ConsumerConfig.DEFAULT_API_TIMEOUT_MS_CONFIG, 60_000);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties);
             PrintWriter out = new PrintWriter(Files.newBufferedWriter(file))) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (String name : names)
                consumer.partitionsFor(name).forEach(each -> partitions.add(new TopicPartition(name, each.partition())));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            long deadline = System.nanoTime() + 240_000_000_000L;
            while (partitions.stream().anyMatch(each -> consumer.position(each) < ends.get(each))) {
                if (System.nanoTime() > deadline) return "not everything could be read: " + ends;
                for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(500)))
                    out.println(String.join("\t", each.topic(), "" + each.partition(), "" + each.offset(), each.key()));
            }
            return "done";
        } catch (RuntimeException error) {
            return "reading failed: " + error;
        }
    }

    // --- clients ---

    private Properties common(String name) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", servers);
        properties.put("client.id", "load-" + name);
        properties.put("metadata.max.age.ms", 2000);
        properties.put("request.timeout.ms", 15_000);
        return properties;
    }

    private Properties producing(String name) {
        Properties properties = common(name);
        properties.put(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, StringSerializer.class);
        properties.put(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, StringSerializer.class);
        properties.put(ProducerConfig.ACKS_CONFIG, "all");
        properties.put(ProducerConfig.ENABLE_IDEMPOTENCE_CONFIG, true);
        properties.put(ProducerConfig.DELIVERY_TIMEOUT_MS_CONFIG, PATIENCE_MS);
        properties.put(ProducerConfig.MAX_BLOCK_MS_CONFIG, PATIENCE_MS);
        return properties;
    }

    private Properties consuming(String name) {
        Properties properties = common(name);
        properties.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class);
        properties.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class);
        properties.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed");
        properties.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        return properties;
    }

    private void produce() throws InterruptedException {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(producing("producer"))) {
            for (long number = 0; !ended; Thread.sleep(PAUSE_MS)) {
                Lock turn = turns.readLock();
                turn.lock();
                try {
                    for (int i = 0; i < RECORDS && !topics.isEmpty(); i++, number++) {
                        String key = "p-" + number;
                        producer.send(record(number, key), (at, error) -> {
                            if (error == null) say("acknowledged", at, key);
                            else tell("producer", error);
                        });
                    }
                    producer.flush();
                } finally {
                    turn.unlock();
                }
            }
        }
    }

    private ProducerRecord<String, String> record(long number, String key) {
        Object[] now = topics.toArray();
        return new ProducerRecord<>((String) now[(int) (number % now.length)], key, "v" + key);
    }

    private void transact() throws InterruptedException {
        Properties properties = producing("transactions");
        properties.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, "load");
        // A coordinator waits as long for its own log, even where that only moves on with the next record.
        properties.put(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG, 120_000);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties)) {
            producer.initTransactions();
            for (long number = 0; !ended; number++, Thread.sleep(PAUSE_MS)) {
                Lock turn = turns.readLock();
                turn.lock();
                try {
                    if (!topics.isEmpty()) transaction(producer, number);
                } finally {
                    turn.unlock();
                }
            }
        }
    }

    private void transaction(KafkaProducer<String, String> producer, long number) {
        List<String> keys = new ArrayList<>();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        producer.beginTransaction();
        try {
            for (int i = 0; i < RECORDS / 2; i++) {
                String key = "t-" + number + "-" + i;
                keys.add(key);
                sent.add(producer.send(record(number + i, key)));
            }
            producer.flush();
            if (number % 4 == 3) {
                again(producer::abortTransaction);
                keys.forEach(key -> write("aborted", key));
            } else {
                again(producer::commitTransaction);
                for (int i = 0; i < keys.size(); i++) say("committed", finished(sent.get(i)), keys.get(i));
            }
        } catch (ProducerFencedException | InvalidProducerEpochException error) {
            throw error;
        } catch (KafkaException error) {
            write("error", "transactions", "abortable", error.toString());
            again(producer::abortTransaction);
            keys.forEach(key -> write("aborted", key));
        }
    }

    private static RecordMetadata finished(Future<RecordMetadata> sent) {
        try {
            return sent.get();
        } catch (InterruptedException | ExecutionException error) {
            throw new IllegalStateException("committed, and not sent", error);
        }
    }

    /** A call that took too long may be made again until it is known how it ended. */
    private static void again(Runnable call) {
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException again) {
                continue;
            }
        }
    }

    private void consume() {
        Properties properties = consuming("group");
        properties.put(ConsumerConfig.GROUP_ID_CONFIG, "load");
        // Its own commits are repeated for a deleted topic until a rebalance gives up, which takes five minutes.
        properties.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, false);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(properties)) {
            consumer.subscribe(Pattern.compile("load-.*"));
            while (!ended) {
                try {
                    for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(500))) {
                        synchronized (group) {
                            group.println(each.topic() + "\t" + each.partition() + "\t" + each.offset());
                        }
                    }
                    consumer.commitAsync((offsets, error) -> { }); // what is read twice does no harm
                } catch (RetriableException error) {
                    tell("group", error);
                }
            }
        }
    }

    // --- what became of it ---

    private interface Work {
        void run() throws Exception;
    }

    private void guard(String who, Work work) {
        try {
            work.run();
        } catch (Throwable error) {
            if (!ended) write("error", who, "fatal", error.toString());
        }
    }

    private void tell(String who, Exception error) {
        write("error", who, error instanceof RetriableException ? "retriable" : "fatal", error.toString());
    }

    private void say(String what, RecordMetadata at, String key) {
        write(what, at.topic(), "" + at.partition(), "" + at.offset(), key);
    }

    private void write(String... words) {
        synchronized (acknowledged) {
            acknowledged.println(String.join("\t", words).replace("\n", " "));
        }
    }
}
