import java.io.IOException;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.stream.Stream;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.metadata.AbortTransactionRecord;
import org.apache.kafka.common.metadata.BeginTransactionRecord;
import org.apache.kafka.common.metadata.EndTransactionRecord;
import org.apache.kafka.common.metadata.NoOpRecord;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.image.writer.ImageWriterOptions;
import org.apache.kafka.image.writer.RecordListWriter;
import org.apache.kafka.image.writer.UnwritableMetadataException;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.MetadataVersion;

/** Kafka's own metadata image: takes records, one delta a record, and writes itself as a snapshot does. */
final class Images {
    private Images() { }

    /** Lines: "record HEX", "new", "write LEVEL". Prints "record HEX" in the order written, "lost TEXT", "refused TEXT", "done". */
    static void play(Path script, PrintStream out) throws Exception {
        MetadataImage image = MetadataImage.EMPTY;
        for (String line : Files.readAllLines(script)) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "new" -> image = MetadataImage.EMPTY;
                case "record" -> {
                    MetadataDelta delta = new MetadataDelta.Builder().setImage(image).build();
                    try {
                        delta.replay(read(words[1]).message());
                        image = delta.apply(new MetadataProvenance(0, 0, 0, true));
                    } catch (RuntimeException refused) {
                        out.println("refused\t" + refused);
                    }
                }
                case "write" -> write(image, Short.parseShort(words[1]), out);
                default -> throw new IllegalArgumentException(line);
            }
        }
    }

    /**
     * The image that a metadata folder comes to: its newest snapshot up to an offset, and what the log has from there.
     * Prints as "write" does, at the image's own level.
     */
    static void of(Path folder, long end, PrintStream out) throws IOException {
        Path snapshot = null;
        long start = 0;
        List<Path> segments = new ArrayList<>();
        try (Stream<Path> files = Files.list(folder)) {
            for (Path file : files.sorted().toList()) {
                String name = file.getFileName().toString();
                if (name.endsWith(".log")) segments.add(file);
                if (!name.matches("\\d{20}-\\d{10}\\.checkpoint") || name.startsWith("00000000000000000000")) continue;
                long offset = Long.parseLong(name.substring(0, 20));
                if (offset <= end) {
                    snapshot = file;
                    start = offset;
                }
            }
        }
        Replay replay = new Replay();
        if (snapshot != null) replay.take(snapshot, 0, Long.MAX_VALUE);
        long next = start;
        for (Path segment : segments) next = Math.max(next, replay.take(segment, start, end));
        if (next < end) throw new IllegalStateException(folder + " ends at " + next + ", before " + end);
        write(replay.image, replay.image.features().metadataVersionOrThrow().featureLevel(), out);
    }

    /** Records of files, one delta each; those of a metadata transaction when it ends. */
    private static final class Replay {
        MetadataImage image = MetadataImage.EMPTY;
        private List<ApiMessageAndVersion> transaction;

        long take(Path file, long start, long end) throws IOException {
            long next = start;
            FileRecords records = FileRecords.open(file.toFile(), false);
            try {
                for (RecordBatch batch : records.batches()) {
                    if (batch.baseOffset() < start || batch.lastOffset() >= end) continue;
                    next = batch.lastOffset() + 1;
                    if (batch.isControlBatch()) continue;
                    for (Record each : batch)
                        take(MetadataRecordSerde.INSTANCE.read(new ByteBufferAccessor(each.value()), each.valueSize()));
                }
            } finally {
                records.closeHandlers(); // close() would cut the file
            }
            return next;
        }

        private void take(ApiMessageAndVersion record) {
            if (record.message() instanceof BeginTransactionRecord) {
                transaction = new ArrayList<>();
            } else if (record.message() instanceof AbortTransactionRecord) {
                transaction = null;
            } else if (record.message() instanceof EndTransactionRecord) {
                List<ApiMessageAndVersion> whole = transaction;
                transaction = null;
                whole.forEach(this::take);
            } else if (transaction != null) {
                transaction.add(record);
            } else if (!(record.message() instanceof NoOpRecord)) {
                MetadataDelta delta = new MetadataDelta.Builder().setImage(image).build();
                delta.replay(record.message());
                image = delta.apply(new MetadataProvenance(0, 0, 0, true));
            }
        }
    }

    private static void write(MetadataImage image, short level, PrintStream out) {
        RecordListWriter writer = new RecordListWriter();
        try {
            image.write(writer, new ImageWriterOptions.Builder(image)
                .setMetadataVersion(MetadataVersion.fromFeatureLevel(level)).build());
            StringBuilder lines = new StringBuilder();
            for (ApiMessageAndVersion record : writer.records()) lines.append("record\t").append(hex(record)).append("\n");
            out.print(lines);
        } catch (UnwritableMetadataException lost) {
            out.println("lost\t" + lost.loss());
        } catch (UnsupportedVersionException lost) { // of fields that nobody looked at before
            out.println("lost\t" + lost.getMessage());
        }
        out.println("done");
    }

    private static ApiMessageAndVersion read(String hex) {
        byte[] value = HexFormat.of().parseHex(hex);
        return MetadataRecordSerde.INSTANCE.read(new ByteBufferAccessor(ByteBuffer.wrap(value)), value.length);
    }

    private static String hex(ApiMessageAndVersion record) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(MetadataRecordSerde.INSTANCE.recordSize(record, cache));
        MetadataRecordSerde.INSTANCE.write(record, cache, new ByteBufferAccessor(buffer));
        return HexFormat.of().formatHex(buffer.array());
    }
}
