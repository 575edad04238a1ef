// What the programs in Java share: the journal, and a loop for locks.
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.Callable;

class Journal {
    static final Path WORK = Path.of(System.getenv("WORK"));
    static final int PORT = Integer.parseInt(System.getenv("PORT"));
    static final int JOBS = 120;

    static {
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {
            error.printStackTrace();
            expect(false, error.toString());
        });
    }

    static void write(String word, Object name) throws Exception {
        String line = word + " " + name + " " + System.currentTimeMillis() / 1000.0 + "\n";
        Files.writeString(WORK.resolve("journal"), line, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    static String read(String name) throws Exception {
        Path file = WORK.resolve(name);
        return Files.exists(file) ? Files.readString(file) : "";
    }

    static boolean startedAgain() throws Exception {
        return read("journal").contains("UP -");
    }

    /** Ends the program, if this is not so. */
    static void expect(boolean so, String what) {
        if (!so) {
            System.out.println(what);
            System.exit(1);
        }
    }

    /** Waits until what is true, whatever it throws meanwhile. */
    static void waitFor(Callable<Boolean> what) throws Exception {
        for (long end = System.currentTimeMillis() + 100_000; ; Thread.sleep(200)) {
            try {
                if (what.call()) {
                    return;
                }
            } catch (Exception error) {
                System.err.println(error);
            }
            expect(System.currentTimeMillis() < end, "waited in vain");
        }
    }

    /** What is done under the lock: counts in a file. Whether there is more to count. */
    static boolean count() throws Exception {
        String text = read("counter");
        int number = text.isEmpty() ? 0 : Integer.parseInt(text);
        if (number >= JOBS) {
            return false;
        }
        Thread.sleep(10);
        Files.writeString(WORK.resolve("counter"), String.valueOf(number + 1));
        write("done", number + 1);
        return true;
    }

    static void waitForCount() throws Exception {
        waitFor(() -> read("counter").equals(String.valueOf(JOBS)));
    }
}
