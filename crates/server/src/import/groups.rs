//! Commands of another server as they were read: in groups that have to be in one transaction.

use crate::resp::is;

/// A command: its place in the source, and the places of its arguments in the input.
pub struct SourceCommand {
    /// Where it begins.
    pub offset: u64,
    /// Begin and end of each argument.
    pub arguments: Vec<(usize, usize)>,
}

impl SourceCommand {
    /// An argument; nothing if there are fewer.
    pub fn argument<'a>(&self, at: usize, input: &'a [u8]) -> &'a [u8] {
        self.arguments.get(at).map_or(b"", |&(from, to)| &input[from..to])
    }
}

/// Commands that have to be in one transaction: one, or those between MULTI and EXEC.
pub struct CommandGroup {
    /// The database in which the first of them runs.
    pub database: u32,
    /// The commands.
    pub commands: Vec<SourceCommand>,
    /// Where the group ends in the source.
    pub end: u64,
    /// The database in which those behind it run.
    pub database_behind: u32,
}

/// Commands that were read and have not run.
#[derive(Default)]
pub struct PendingCommands {
    /// Whole groups.
    pub groups: Vec<CommandGroup>,
    /// MULTI was read, and no EXEC: the database, and what was read since.
    open: Option<(u32, Vec<SourceCommand>)>,
    /// The database that was selected last.
    pub database: u32,
}

/// The number of a database.
pub fn database_of(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

impl PendingCommands {
    /// None, where a database was selected.
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
    /// It selects a database that is not there.
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
