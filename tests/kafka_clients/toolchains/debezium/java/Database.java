import io.zonky.test.db.postgres.embedded.EmbeddedPostgres;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.Statement;

/**
 * A PostgreSQL with one table, for a process that asks by lines of its input: "change N" makes N changes of the 100
 * rows, each committed by itself, "delete N" removes rows from the first on, "rows" prints all. Each answer ends with
 * a line "done".
 */
public final class Database {
  private static final int ROWS = 100;

  private Database() {}

  public static void main(String[] arguments) throws Exception {
    try (EmbeddedPostgres postgres = EmbeddedPostgres.builder().setServerConfig("wal_level", "logical").start();
        Connection connection = postgres.getPostgresDatabase().getConnection();
        Statement statement = connection.createStatement()) {
      statement.execute("CREATE TABLE items (id INT PRIMARY KEY, amount INT NOT NULL)");
      System.out.println("port " + postgres.getPort());
      BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
      int changes = 0;
      for (String line = input.readLine(); line != null; line = input.readLine()) {
        String[] words = line.split(" ");
        switch (words[0]) {
          case "change" -> changes = change(statement, changes, Integer.parseInt(words[1]));
          case "delete" -> statement.execute("DELETE FROM items WHERE id < " + Integer.parseInt(words[1]));
          case "rows" -> print(statement);
          default -> throw new IllegalArgumentException(line);
        }
        System.out.println("done");
      }
    }
  }

  private static int change(Statement statement, int before, int count) throws Exception {
    String upsert = "INSERT INTO items VALUES (%d, %d) ON CONFLICT (id) DO UPDATE SET amount = EXCLUDED.amount";
    for (int number = before; number < before + count; number++) {
      statement.execute(String.format(upsert, number % ROWS, number));
    }
    return before + count;
  }

  private static void print(Statement statement) throws Exception {
    try (ResultSet rows = statement.executeQuery("SELECT id, amount FROM items ORDER BY id")) {
      while (rows.next()) {
        System.out.println("row " + rows.getInt(1) + " " + rows.getInt(2));
      }
    }
  }
}
