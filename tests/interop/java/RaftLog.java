import java.io.IOException;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.Readable;
import org.apache.kafka.common.protocol.Writable;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.raft.Isolation;
import org.apache.kafka.raft.LogOffsetMetadata;
import org.apache.kafka.raft.MetadataLogConfig;
import org.apache.kafka.raft.internals.KafkaRaftLog;
import org.apache.kafka.server.common.KRaftVersion;
import org.apache.kafka.server.common.OffsetAndEpoch;
import org.apache.kafka.server.common.serialization.RecordSerde;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.snapshot.RawSnapshotReader;
import org.apache.kafka.snapshot.RecordsSnapshotWriter;

/** Kafka's own metadata log, as its controllers open it. */
final class RaftLog {
    private static final TopicPartition PARTITION = new TopicPartition("__cluster_metadata", 0);
    private static final Uuid TOPIC_ID = new Uuid(0L, 1L);
    private static final KafkaScheduler SCHEDULER = new KafkaScheduler(1, true, "interop-");

    private RaftLog() { }

    private static KafkaRaftLog open(Path folder, int segmentBytes) throws IOException {
        if (!SCHEDULER.isStarted()) SCHEDULER.startup();
        Map<String, Object> settings = new HashMap<>();
        if (segmentBytes > 0) settings.put(MetadataLogConfig.INTERNAL_METADATA_LOG_SEGMENT_BYTES_CONFIG, segmentBytes);
        MetadataLogConfig config = new MetadataLogConfig(new AbstractConfig(MetadataLogConfig.CONFIG_DEF, settings, false));
        return KafkaRaftLog.createLog(PARTITION, TOPIC_ID, folder.toFile(), Time.SYSTEM, SCHEDULER, config, 1);
    }

    /** Values are plain bytes. */
    private static final class BytesSerde implements RecordSerde<byte[]> {
        public int recordSize(byte[] data, ObjectSerializationCache cache) {
            return data.length;
        }

        public void write(byte[] data, ObjectSerializationCache cache, Writable out) {
            out.writeByteArray(data);
        }

        public byte[] read(Readable input, int size) {
            return input.readArray(size);
        }
    }

    /** Opens a folder and says what is in it; every batch is read through the log and checked. */
    static void describe(Path folder, int highestEpoch, PrintStream out) throws Exception {
        KafkaRaftLog log = open(folder, 0);
        out.println("start\t" + log.startOffset());
        out.println("end\t" + log.endOffset().offset());
        out.println("last epoch\t" + log.lastFetchedEpoch());
        for (int epoch = 0; epoch <= highestEpoch; epoch++) {
            try {
                OffsetAndEpoch found = log.endOffsetForEpoch(epoch);
                out.println("epoch end\t" + epoch + "\t" + found.offset() + "\t" + found.epoch());
            } catch (IllegalArgumentException unknown) {
                out.println("epoch end\t" + epoch + "\t-\t-");
            }
        }
        long next = log.startOffset();
        while (next < log.endOffset().offset()) {
            FileRecords records = (FileRecords) log.read(next, Isolation.UNCOMMITTED, 1 << 20).records;
            for (RecordBatch batch : records.batches()) {
                batch.ensureValid();
                out.println("batch\t" + batch.baseOffset() + "\t" + batch.lastOffset() + "\t"
                    + batch.partitionLeaderEpoch() + "\t" + batch.sizeInBytes() + "\t" + batch.checksum());
                next = batch.nextOffset();
            }
        }
        if (log.latestSnapshotId().isPresent()) {
            out.println("earliest snapshot\t" + text(log.earliestSnapshotId().get()));
            out.println("latest snapshot\t" + text(log.latestSnapshotId().get()));
            RawSnapshotReader reader = log.readSnapshot(log.latestSnapshotId().get()).get();
            out.println("snapshot bytes\t" + reader.sizeInBytes());
            for (RecordBatch batch : ((FileRecords) reader.records()).batches()) {
                batch.ensureValid();
                out.println("snapshot batch\t" + batch.baseOffset() + "\t" + batch.lastOffset() + "\t"
                    + batch.partitionLeaderEpoch() + "\t" + batch.isControlBatch() + "\t" + batch.checksum());
            }
        }
        log.close();
    }

    private static String text(OffsetAndEpoch id) {
        return id.offset() + "\t" + id.epoch();
    }

    /** Fills a folder: {@code epochs} epochs of {@code batches} batches of {@code records} records, one snapshot. */
    static void fill(Path folder, int epochs, int batches, int records, int segmentBytes) throws Exception {
        KafkaRaftLog log = open(folder, segmentBytes);
        long snapshotEnd = 0;
        for (int epoch = 1; epoch <= epochs; epoch++) {
            log.initializeLeaderEpoch(epoch);
            for (int number = 0; number < batches; number++) {
                long offset = log.endOffset().offset();
                SimpleRecord[] content = new SimpleRecord[records];
                for (int i = 0; i < records; i++) content[i] = new SimpleRecord(1_700_000_000_000L + offset, null, value(offset + i));
                log.appendAsLeader(MemoryRecords.withRecords(offset, Compression.NONE, epoch, content), epoch);
            }
            if (epoch == 1) snapshotEnd = log.endOffset().offset();
        }
        log.flush(true);
        log.updateHighWatermark(new LogOffsetMetadata(log.endOffset().offset()));
        try (RecordsSnapshotWriter<byte[]> writer = new RecordsSnapshotWriter.Builder()
                .setLastContainedLogTimestamp(1_700_000_000_000L)
                .setTime(Time.SYSTEM)
                .setKraftVersion(KRaftVersion.KRAFT_VERSION_0)
                .setRawSnapshotWriter(log.createNewSnapshot(new OffsetAndEpoch(snapshotEnd, 1)).get())
                .build(new BytesSerde())) {
            writer.append(List.of(value(0), value(1)));
            writer.freeze();
        }
        log.close();
    }

    private static byte[] value(long offset) {
        return ("value of offset " + offset).getBytes(StandardCharsets.UTF_8);
    }
}
