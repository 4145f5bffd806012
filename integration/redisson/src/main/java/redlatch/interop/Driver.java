package redlatch.interop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The Redisson side of the interoperability tests: a process that takes
 * commands on its standard input and answers on its standard output.
 *
 * <p>One command per line, fields separated by one space:
 * {@code <id> <verb> [<owner>] [<lock>] [<argument>...]}. Each answer is one line
 * that begins with the id of its command; answers come in the order in which
 * the commands end, so a command that blocks holds up nobody else:
 *
 * <pre>
 *   id ok  value epoch_us took_us     value is "-" where there is none
 *   id err ExceptionName message      message is percent-encoded
 * </pre>
 *
 * <p>Redisson's owner is a thread. Each owner name of this protocol stands for one
 * thread that the driver keeps for its whole life, and the commands of one owner
 * run one after the other on it. See {@link Locks} for how locks are written and
 * {@link Commands} for the verbs.
 *
 * <p>The process ends when its standard input does, so it never outlives its parent.
 */
public final class Driver {
    private final PrintStream out;
    private final Clients clients;
    private final Commands commands;
    private final Map<String, Owner> owners = new ConcurrentHashMap<>();

    private Driver(PrintStream out, Clients clients) {
        this.out = out;
        this.clients = clients;
        this.commands = new Commands(clients);
    }

    /** Starts the clients that the arguments ask for ({@link Clients#open}) and serves standard input. */
    public static void main(String[] args) throws IOException {
        // The protocol owns the real standard output; whatever a library prints goes to stderr.
        PrintStream out = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Driver driver;
        try {
            driver = new Driver(out, Clients.open(args));
        } catch (RuntimeException e) {
            e.printStackTrace();
            out.println("0 err " + describe(e));
            out.flush();
            Runtime.getRuntime().halt(1);
            return;
        }
        driver.answer("0", "ok " + driver.clients.version(), System.nanoTime());
        driver.serve();
    }

    private void serve() throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] f = line.strip().split(" ");
            if (f.length < 2) {
                continue;
            }
            dispatch(f[0], f[1], java.util.Arrays.copyOfRange(f, 2, f.length));
        }
        // The parent is gone or wants us gone: leave at once, as a crash would; held locks stay to their lease.
        Runtime.getRuntime().halt(0);
    }

    private void dispatch(String id, String verb, String[] args) {
        long start = System.nanoTime();
        switch (verb) {
            case "quit" -> {
                clients.close();
                answer(id, "ok -", start);
                Runtime.getRuntime().halt(0);
            }
            case "halt" -> {
                commands.halt();
                answer(id, "ok -", start);
            }
            case "asleep" -> answer(id, "ok " + owners.values().stream().allMatch(Owner::asleep), start);
            case "interrupt" -> {
                owner(args[0]).interrupt();
                answer(id, "ok -", start);
            }
            default -> {
                if (args.length == 0) {
                    answer(id, "err BadCommand owner-missing", start);
                    return;
                }
                owner(args[0]).run(() -> execute(id, verb, args));
            }
        }
    }

    private void execute(String id, String verb, String[] args) {
        long start = System.nanoTime();
        String result;
        try {
            result = "ok " + commands.run(verb, args[0], java.util.Arrays.copyOfRange(args, 1, args.length));
        } catch (Exception e) {
            result = "err " + describe(e);
        } finally {
            // An interrupt that came too late must not hit this owner's next command.
            Thread.interrupted();
        }
        answer(id, result, start);
    }

    private Owner owner(String name) {
        return owners.computeIfAbsent(name, Owner::new);
    }

    private void answer(String id, String result, long start) {
        long at = ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
        long took = (System.nanoTime() - start) / 1000;
        synchronized (out) {
            out.print(id + " " + result + (result.startsWith("ok") ? " " + at + " " + took : "") + "\n");
            out.flush();
        }
    }

    // An interrupt that comes while a command is on its way is wrapped by Redisson.
    private static String describe(Throwable wrapped) {
        Throwable e = wrapped.getCause() instanceof InterruptedException ? wrapped.getCause() : wrapped;
        return e.getClass().getSimpleName() + " "
                + URLEncoder.encode(String.valueOf(e.getMessage()), StandardCharsets.UTF_8).replace("+", "%20");
    }
}
