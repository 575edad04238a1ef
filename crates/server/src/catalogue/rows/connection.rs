//! Rows of the commands for connections. The columns are the fields of `Row`.

macro_rules! connection_rows {
    ($with:ident) => {
        $with! { "connection";
        "asking", 1, Local(cluster::asking), FAST, [], "connection", Event::None,
            "3.0.0", "O(1)", "Does nothing: no slot is being moved",
            "";
        "auth", -2, Local(connection::auth), FAST | NOSCRIPT | NO_AUTH | ALLOW_BUSY, [],
            "connection", Event::None,
            "1.0.0", "O(N) with N the passwords of the user", "Logs in",
            "[username] password";
        "client", -2, Local(client::client), NO_FLAGS, [], "", Event::None,
            "2.4.0", "-", "Tells of connections, and changes them",
            "";
        "echo", 2, Local(connection::echo), FAST, [], "connection", Event::None,
            "1.0.0", "O(1)", "Returns its argument",
            "message";
        "hello", -1, Local(connection::hello), FAST | NOSCRIPT | NO_AUTH | ALLOW_BUSY, [],
            "connection", Event::None,
            "6.0.0", "O(1)", "Chooses the version of the protocol, and may log in",
            "arguments:[protover [AUTH username password] [SETNAME clientname]]";
        #[cfg(feature = "replication")]
        "hyades.after", -2, Local(members::after), FAST | NOSCRIPT, [], "connection", Event::None,
            "0.1.0", "O(1)", "Waits until what is read here has a transaction, by its id",
            "id [milliseconds:integer]";
        "hyades.durability", -1, Local(server::durability), FAST, [], "connection", Event::None,
            "0.1.0", "O(1)",
            "Says when the connection is answered: on disk, within a second, or at once",
            "mode:[ACK|1S|NONE]";
        "hyades.last", 1, Local(server::last), FAST, [], "connection", Event::None,
            "0.1.0", "O(1)", "Returns the id of the connection's last transaction that has written",
            "";
        "hyades.rollback", -1, Local(server::rollback), FAST, [], "connection", Event::None,
            "0.1.0", "O(1)", "Says whether an error of a command undoes all of its EXEC",
            "mode:[ON|OFF]";
        "ping", -1, Local(connection::ping), FAST, [], "connection", Event::None,
            "1.0.0", "O(1)", "Answers PONG, or its argument",
            "[message]";
        "quit", -1, Local(connection::quit), FAST | NOSCRIPT | NO_AUTH | ALLOW_BUSY, [],
            "connection", Event::None,
            "1.0.0", "O(1)", "Ends the connection",
            "";
        "readonly", 1, Local(cluster::readonly), FAST, [], "connection", Event::None,
            "3.0.0", "O(1)", "Has a standby of a cluster answer reads",
            "";
        "readwrite", 1, Local(cluster::readwrite), FAST, [], "connection", Event::None,
            "3.0.0", "O(1)", "Ends READONLY",
            "";
        "reset", 1, Local(connection::reset), FAST | NOSCRIPT | NO_AUTH | ALLOW_BUSY, [],
            "connection", Event::None,
            "6.2.0", "O(1)", "Sets the connection to its first state",
            "";
        "select", 2, Local(connection::select), FAST, [], "connection", Event::None,
            "1.0.0", "O(1)", "Chooses the database of the connection",
            "index";
        }
    };
}
pub(crate) use connection_rows;
