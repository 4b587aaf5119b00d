import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/**
 * Serves benchmark operations to bench/peers/java_peer.py, one request a line on standard input, fields parted by tabs:
 * prepare NAME ARGUMENT... -> ok HANDLE DIGEST; run HANDLE CALLS -> ok NANOSECONDS; close HANDLE -> ok.
 * A failure answers "error TEXT".
 */
public class Main {
    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err); // nothing but answers may reach the pipe
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        List<Work> works = new ArrayList<>();
        out.println("ok\tJava " + Runtime.version() + "\t" + Codec.clientsVersion());
        out.flush();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] field = line.split("\t");
            String answer;
            try {
                switch (field[0]) {
                    case "prepare" -> {
                        Work work = prepare(field);
                        works.add(work);
                        answer = (works.size() - 1) + "\t" + work.digest();
                    }
                    case "run" -> answer = Long.toString(works.get(Integer.parseInt(field[1])).run(Long.parseLong(field[2])));
                    case "close" -> {
                        works.set(Integer.parseInt(field[1]), null).close();
                        answer = "";
                    }
                    default -> throw new IllegalArgumentException("unknown request " + field[0]);
                }
                out.println("ok\t" + answer);
            } catch (Throwable failure) {
                failure.printStackTrace();
                out.println("error\t" + String.valueOf(failure).replaceAll("\\s+", " "));
            }
            out.flush();
        }
    }

    private static Work prepare(String[] field) throws Exception {
        return switch (field[1]) {
            case "encode" -> Codec.encode(field[2], Integer.parseInt(field[3]), Integer.parseInt(field[4]), Long.parseLong(field[5]));
            case "decode" -> Codec.decode(field[2]);
            case "fetch_request_encode" -> Codec.requestEncode(field[2]);
            case "fetch_request_decode" -> Codec.requestDecode(field[2]);
            case "fetch_response_encode" -> Codec.responseEncode(field[2]);
            case "fetch_response_decode" -> Codec.responseDecode(field[2]);
            case "append" -> new Disk.Append(field[2], field[3], Integer.parseInt(field[4]));
            case "tail_read" -> new Disk.TailRead(field[2], field[3], Integer.parseInt(field[4]), Integer.parseInt(field[5]));
            case "open" -> new Disk.Open(field[2]);
            default -> throw new IllegalArgumentException("unknown operation " + field[1]);
        };
    }
}
