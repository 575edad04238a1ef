//! Commands of another server as read: in groups, each for one transaction.

use crate::resp::is;

/// A command: the place in the source, and the places of the arguments in the input.
pub struct SourceCommand {
    /// Where the command begins.
    pub offset: u64,
    /// Begin and end of each argument.
    pub arguments: Vec<(usize, usize)>,
}

impl SourceCommand {
    /// An argument; empty if there are fewer.
    pub fn argument<'a>(&self, at: usize, input: &'a [u8]) -> &'a [u8] {
        self.arguments.get(at).map_or(b"", |&(from, to)| &input[from..to])
    }
}

/// Commands for one transaction: a single command, or the commands between MULTI and EXEC.
pub struct CommandGroup {
    /// The database of the group's first command.
    pub database: u32,
    /// The commands.
    pub commands: Vec<SourceCommand>,
    /// Where the group ends in the source.
    pub end: u64,
    /// The database of the commands behind the group.
    pub database_behind: u32,
}

/// Commands already read, and not run yet.
#[derive(Default)]
pub struct PendingCommands {
    /// Whole groups.
    pub groups: Vec<CommandGroup>,
    /// After a MULTI without an EXEC: the database, and the commands read since.
    open: Option<(u32, Vec<SourceCommand>)>,
    /// The last selected database.
    pub database: u32,
}

/// The number of a database.
pub fn database_of(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

impl PendingCommands {
    /// No commands, with this database selected.
    pub fn in_database(database: u32) -> PendingCommands {
        PendingCommands { database, ..PendingCommands::default() }
    }

    /// Whether the end of a MULTI is missing.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Adds a command that ends at `end`.
    ///
    /// # Errors
    /// The command selects a database that does not exist.
    pub fn add(
        &mut self,
        command: SourceCommand,
        end: u64,
        input: &[u8],
        databases: u32,
    ) -> Result<(), String> {
        let name = command.argument(0, input);
        if is(name, "SELECT") {
            let number = database_of(command.argument(1, input));
            let Some(number) = number.filter(|number| *number < databases) else {
                let shown = String::from_utf8_lossy(command.argument(1, input)).into_owned();
                return Err(format!(
                    "database {shown} is selected, and there are {databases}: --databases makes \
                     room"
                ));
            };
            self.database = number;
        }
        if is(name, "MULTI") {
            self.open = Some((self.database, Vec::new()));
        } else if is(name, "EXEC") {
            if let Some((database, commands)) = self.open.take() {
                self.push(database, commands, end);
            }
        } else if let Some((_, commands)) = &mut self.open {
            commands.push(command);
        } else if !is(name, "SELECT") {
            self.push(self.database, vec![command], end);
        }
        Ok(())
    }

    fn push(&mut self, database: u32, commands: Vec<SourceCommand>, end: u64) {
        let database_behind = self.database;
        self.groups.push(CommandGroup { database, commands, end, database_behind });
    }
}
