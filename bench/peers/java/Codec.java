import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.HexFormat;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.message.FetchRequestData;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.AppInfoParser;

/** Record batches and messages with kafka-clients. */
final class Codec {
    static volatile long sink; // results go here, so that the compiler cannot drop the work
    private static final short VERSION = 17;
    private static final short REQUEST_HEADER = 2;
    private static final short RESPONSE_HEADER = 1;

    private Codec() { }

    static String clientsVersion() {
        return AppInfoParser.getVersion();
    }

    static String hash(byte[] data) throws Exception {
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(data)).substring(0, 16);
    }

    static byte[] bytes(ByteBuffer buffer) {
        byte[] data = new byte[buffer.remaining()];
        buffer.duplicate().get(data);
        return data;
    }

    /** Values of equal size, one after the other in {@code file}; the output buffer is reused, as Kafka's pools do. */
    static Work encode(String file, int records, int size, long timestamp) throws IOException {
        byte[] all = Files.readAllBytes(Path.of(file));
        byte[][] values = new byte[records][size];
        for (int i = 0; i < records; i++) System.arraycopy(all, i * size, values[i], 0, size);
        ByteBuffer out = ByteBuffer.allocate(records * (size + 32) + 128);
        return new Work() {
            private MemoryRecords build() {
                out.clear();
                MemoryRecordsBuilder builder = MemoryRecords.builder(
                    out, RecordBatch.MAGIC_VALUE_V2, Compression.NONE, TimestampType.CREATE_TIME, 0L);
                for (byte[] value : values) builder.append(timestamp, null, value);
                return builder.build();
            }

            public void call() {
                sink += build().sizeInBytes();
            }

            public String digest() throws Exception {
                byte[] data = bytes(build().buffer());
                for (int i = 12; i < 16; i++) data[i] = 0; // the leader epoch
                return hash(data);
            }
        };
    }

    /** Checks every batch's CRC and visits every record. A value is a slice of the buffer: nothing is copied. */
    static Work decode(String file) throws IOException {
        ByteBuffer input = ByteBuffer.wrap(Files.readAllBytes(Path.of(file)));
        return new Work() {
            public void call() {
                long sum = 0;
                for (RecordBatch batch : MemoryRecords.readableRecords(input).batches()) {
                    batch.ensureValid();
                    for (Record record : batch) sum += record.value().remaining() + record.offset();
                }
                sink += sum;
            }

            public String digest() throws Exception {
                MessageDigest state = MessageDigest.getInstance("SHA-256");
                long count = 0, offsets = 0;
                for (RecordBatch batch : MemoryRecords.readableRecords(input).batches()) {
                    batch.ensureValid();
                    for (Record record : batch) {
                        state.update(record.value());
                        count++;
                        offsets += record.offset();
                    }
                }
                return count + "/" + offsets + "/" + HexFormat.of().formatHex(state.digest()).substring(0, 16);
            }
        };
    }

    private static ByteBuffer write(ApiMessage header, short headerVersion, ApiMessage body) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer out = ByteBuffer.allocate(header.size(cache, headerVersion) + body.size(cache, VERSION));
        ByteBufferAccessor accessor = new ByteBufferAccessor(out);
        header.write(accessor, cache, headerVersion);
        body.write(accessor, cache, VERSION);
        out.flip();
        return out;
    }

    private static Work encode(ApiMessage header, short headerVersion, ApiMessage body) {
        return new Work() {
            public void call() {
                sink += write(header, headerVersion, body).remaining();
            }

            public String digest() throws Exception {
                return hash(bytes(write(header, headerVersion, body)));
            }
        };
    }

    private static ByteBufferAccessor input(String file) throws IOException {
        return new ByteBufferAccessor(ByteBuffer.wrap(Files.readAllBytes(Path.of(file))));
    }

    static Work requestEncode(String file) throws IOException {
        ByteBufferAccessor in = input(file);
        return encode(new RequestHeaderData(in, REQUEST_HEADER), REQUEST_HEADER, new FetchRequestData(in, VERSION));
    }

    static Work responseEncode(String file) throws IOException {
        ByteBufferAccessor in = input(file);
        return encode(new ResponseHeaderData(in, RESPONSE_HEADER), RESPONSE_HEADER, new FetchResponseData(in, VERSION));
    }

    static Work requestDecode(String file) throws IOException {
        byte[] data = Files.readAllBytes(Path.of(file));
        return new Work() {
            public void call() {
                ByteBufferAccessor in = new ByteBufferAccessor(ByteBuffer.wrap(data));
                RequestHeaderData header = new RequestHeaderData(in, REQUEST_HEADER);
                sink += header.correlationId() + new FetchRequestData(in, VERSION).topics().size();
            }

            public String digest() throws Exception {
                ByteBufferAccessor in = new ByteBufferAccessor(ByteBuffer.wrap(data));
                RequestHeaderData header = new RequestHeaderData(in, REQUEST_HEADER);
                return hash(bytes(write(header, REQUEST_HEADER, new FetchRequestData(in, VERSION))));
            }
        };
    }

    static Work responseDecode(String file) throws IOException {
        byte[] data = Files.readAllBytes(Path.of(file));
        return new Work() {
            public void call() {
                ByteBufferAccessor in = new ByteBufferAccessor(ByteBuffer.wrap(data));
                ResponseHeaderData header = new ResponseHeaderData(in, RESPONSE_HEADER);
                sink += header.correlationId() + new FetchResponseData(in, VERSION).responses().size();
            }

            public String digest() throws Exception {
                ByteBufferAccessor in = new ByteBufferAccessor(ByteBuffer.wrap(data));
                ResponseHeaderData header = new ResponseHeaderData(in, RESPONSE_HEADER);
                return hash(bytes(write(header, RESPONSE_HEADER, new FetchResponseData(in, VERSION))));
            }
        };
    }
}
