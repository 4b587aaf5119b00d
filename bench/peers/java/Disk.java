import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.raft.Isolation;
import org.apache.kafka.raft.MetadataLogConfig;
import org.apache.kafka.raft.internals.KafkaRaftLog;
import org.apache.kafka.server.util.KafkaScheduler;

/** Kafka's own metadata log: what its controllers append to, read from and open. Nothing here calls flush. */
final class Disk {
    private static final TopicPartition PARTITION = new TopicPartition("__cluster_metadata", 0);
    private static final KafkaScheduler SCHEDULER = new KafkaScheduler(1, true, "bench-");

    static {
        SCHEDULER.startup();
    }

    private Disk() { }

    static KafkaRaftLog open(Path folder) throws IOException {
        MetadataLogConfig config = new MetadataLogConfig(new AbstractConfig(MetadataLogConfig.CONFIG_DEF, Map.of(), false));
        return KafkaRaftLog.createLog(
            PARTITION, new Uuid(0L, 1L), folder.toFile(), Time.SYSTEM, SCHEDULER, config, 1);
    }

    static void delete(Path folder) throws IOException {
        if (!Files.exists(folder)) return;
        try (Stream<Path> tree = Files.walk(folder)) {
            tree.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
        }
    }

    /** A batch that is appended again and again. Kafka's raft leader numbers a batch before it hands it to the log. */
    private static final class Batch {
        private final ByteBuffer buffer;
        private final MemoryRecords records;
        private final int count;
        private long offset;

        Batch(byte[] data) {
            buffer = ByteBuffer.wrap(data.clone());
            records = MemoryRecords.readableRecords(buffer);
            count = buffer.getInt(57);
        }

        long append(KafkaRaftLog log, int epoch) {
            buffer.putLong(0, offset);
            offset += count;
            return log.appendAsLeader(records, epoch).firstOffset();
        }
    }

    /** A fresh log for each run; only the appends are timed. */
    static final class Append implements Work {
        private final Path parent;
        private final byte[] batch;
        private final int epoch;
        private int used;

        Append(String parent, String batchFile, int epoch) throws IOException {
            this.parent = Path.of(parent);
            this.batch = Files.readAllBytes(Path.of(batchFile));
            this.epoch = epoch;
        }

        public void call() throws Exception {
            run(1);
        }

        public long run(long calls) throws Exception {
            Path folder = fresh();
            KafkaRaftLog log = open(folder);
            Batch next = new Batch(batch);
            next.append(log, epoch); // begins the epoch, with a synced checkpoint
            long begin = System.nanoTime();
            for (long i = 0; i < calls; i++) next.append(log, epoch);
            long taken = System.nanoTime() - begin;
            log.close();
            delete(folder.getParent());
            return taken;
        }

        /** Digest of the log file after three appends. */
        public String digest() throws Exception {
            Path folder = fresh();
            KafkaRaftLog log = open(folder);
            Batch next = new Batch(batch);
            for (int i = 0; i < 3; i++) next.append(log, epoch);
            log.close();
            String result = Codec.hash(Files.readAllBytes(folder.resolve("00000000000000000000.log")));
            delete(folder.getParent());
            return result;
        }

        private Path fresh() throws IOException {
            Path folder = parent.resolve("java-" + used++).resolve("__cluster_metadata-0");
            Files.createDirectories(folder);
            return folder;
        }
    }

    /** Reads the newest batch into a buffer. Kafka answers with a slice of the file; reading that is part of the work. */
    static final class TailRead implements Work {
        private final Path folder;
        private final KafkaRaftLog log;
        private final long offset;
        private final int batchBytes;
        private ByteBuffer last;

        TailRead(String parent, String batchFile, int epoch, int batches) throws IOException {
            folder = Path.of(parent, "java-tail", "__cluster_metadata-0");
            Files.createDirectories(folder);
            log = open(folder);
            byte[] batch = Files.readAllBytes(Path.of(batchFile));
            batchBytes = batch.length;
            Batch next = new Batch(batch);
            long first = 0;
            for (int i = 0; i < batches; i++) first = next.append(log, epoch);
            offset = first;
        }

        public void call() throws Exception {
            FileRecords found = (FileRecords) log.read(offset, Isolation.UNCOMMITTED, batchBytes).records;
            ByteBuffer into = ByteBuffer.allocate(found.sizeInBytes());
            found.readInto(into, 0);
            last = into;
            Codec.sink += into.remaining();
        }

        public String digest() throws Exception {
            call();
            return Codec.hash(Codec.bytes(last));
        }

        public void close() throws Exception {
            log.close();
            delete(folder.getParent());
        }
    }

    /** Opens a log that was closed cleanly. The close is not timed. */
    static final class Open implements Work {
        private final Path folder;

        Open(String folder) {
            this.folder = Path.of(folder);
        }

        public void call() throws Exception {
            run(1);
        }

        public long run(long calls) throws Exception {
            long taken = 0;
            for (long i = 0; i < calls; i++) {
                long begin = System.nanoTime();
                KafkaRaftLog log = open(folder);
                taken += System.nanoTime() - begin;
                log.close();
            }
            return taken;
        }

        public String digest() throws Exception {
            KafkaRaftLog log = open(folder);
            String result = log.startOffset() + ".." + log.endOffset().offset() + " epoch " + log.lastFetchedEpoch();
            log.close();
            return result;
        }
    }
}
