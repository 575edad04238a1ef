//! The effects of commands and their arguments, for COMMAND DOCS.

use super::key_specs;
use super::syntax::{self, Argument};
use crate::catalogue;
use std::sync::OnceLock;

/// The documentation of a command, or a subcommand.
pub struct DocPage {
    /// The name: `get`, `config|set`.
    pub name: &'static str,
    /// The first version with the command: of Redis, or of Hyades for its own commands.
    pub since: &'static str,
    /// How the time grows with the data.
    pub complexity: Option<&'static str>,
    pub summary: &'static str,
    pub arguments: Vec<Argument>,
}

/// The pages of all commands and subcommands by name.
pub fn all() -> &'static [DocPage] {
    static ALL_PAGES: OnceLock<Vec<DocPage>> = OnceLock::new();
    ALL_PAGES.get_or_init(|| {
        let mut all = read_all().expect("the tests read all of them");
        all.sort_by_key(|page| page.name);
        all
    })
}

/// The page of a command, or of a subcommand by its whole name, in any case.
pub fn find(name: &[u8]) -> Option<&'static DocPage> {
    let lower = name.to_ascii_lowercase();
    all().binary_search_by(|page| page.name.as_bytes().cmp(&lower)).ok().map(|at| &all()[at])
}

/// The pages of the subcommands of a command.
pub fn of_subcommands(command: &str) -> Vec<&'static DocPage> {
    let rows = catalogue::subcommands_of(command).iter();
    rows.map(|row| find(row.name.as_bytes()).expect("each subcommand has a page")).collect()
}

/// Reads the arguments of all rows.
fn read_all() -> Result<Vec<DocPage>, String> {
    let read = |name, texts: [&'static str; 4], key_specs| {
        let [since, complexity, summary, arguments] = texts;
        let mut arguments = syntax::parse(arguments).map_err(|text| format!("{name}: {text}"))?;
        syntax::number_keys(&mut arguments, key_specs);
        let complexity = Some(complexity).filter(|complexity| *complexity != "-");
        Ok(DocPage { name, since, complexity, summary, arguments })
    };
    let commands = catalogue::all().iter().map(|row| {
        let specs = if row.is_container { 0 } else { row.shown_keys().count() };
        read(row.name, [row.since, row.complexity, row.summary, row.arguments], specs)
    });
    let subcommands = catalogue::all().iter().flat_map(|row| catalogue::subcommands_of(row.name));
    let subcommands = subcommands.map(|row| {
        let specs = key_specs::of_subcommand(row).len();
        read(row.name, [row.since, row.complexity, row.summary, row.arguments], specs)
    });
    commands.chain(subcommands).collect()
}

#[cfg(test)]
mod tests {
    use super::super::syntax::ArgumentKind;
    use super::*;
    use crate::catalogue::{Command, RequestKeys};

    /// The place of the first key among the words of a request, behind `before` words.
    fn first_key(arguments: &[Argument], before: usize) -> Option<usize> {
        let mut at = before;
        for argument in arguments {
            let own = at + usize::from(argument.token.is_some());
            let found = match argument.kind {
                ArgumentKind::Key => Some(own),
                ArgumentKind::OneOf => argument
                    .parts
                    .iter()
                    .find_map(|part| first_key(std::slice::from_ref(part), own)),
                _ => first_key(&argument.parts, own),
            };
            if found.is_some() {
                return found;
            }
            at += argument.least_words();
        }
        None
    }

    #[test]
    fn every_text_is_read() {
        let pages = read_all().unwrap();
        for DocPage { name, since, summary, .. } in &pages {
            assert!(summary.len() > 5 && summary.len() < 90, "{name}");
            assert!(!summary.ends_with('.') && !summary.contains("  "), "{name}");
            let numbers: Vec<&str> = since.split('.').collect();
            let is_version = numbers.iter().all(|n| n.parse::<u8>().is_ok());
            assert!(numbers.len() == 3 && is_version, "{name}");
        }
        assert!(all().windows(2).all(|pair| pair[0].name < pair[1].name), "each has one page");
        assert_eq!(find(b"Config|GET").map(|page| page.name), Some("config|get"));
        assert!(find(b"get|key").is_none() && find(b"config|get|key").is_none());
        assert!(find(b"").is_none());
    }

    /// Commands that work without a subcommand.
    fn plain_commands() -> impl Iterator<Item = &'static Command> {
        catalogue::all().iter().filter(|command| !command.is_container)
    }

    /// The place of the first key in a request with the fewest words, or with one word more.
    fn first_key_of(command: &Command) -> Option<usize> {
        let fewest = (command.arity.unsigned_abs() as usize).max(2);
        let most = if command.arity < 0 { fewest + 1 } else { fewest };
        (fewest..=most).find_map(|words| {
            let mut request: Vec<&[u8]> = vec![&b"1"[..]; words];
            request[0] = command.name.as_bytes();
            if command.has_movable_keys() && command.group == "stream" {
                request[fewest - 3] = b"STREAMS";
            }
            RequestKeys::of(command, &request).keys.first().map(|(at, _)| *at)
        })
    }

    #[test]
    fn arities_are_those_of_the_rows() {
        for command in plain_commands().filter(|command| command.name != "command") {
            let page = find(command.name.as_bytes()).unwrap();
            let least = 1 + syntax::least_words(&page.arguments);
            assert_eq!(least, command.arity.unsigned_abs() as usize, "{}", command.name);
            // Some exact numbers are looked at by the command itself, as in Redis.
            let is_fixed = page.arguments.iter().all(Argument::is_fixed);
            assert!(is_fixed || command.arity < 0, "{}", command.name);
        }
    }

    #[test]
    fn first_keys_are_those_of_the_specifications() {
        for command in plain_commands().filter(|command| command.name != "command") {
            let page = find(command.name.as_bytes()).unwrap();
            assert_eq!(first_key(&page.arguments, 1), first_key_of(command), "{}", command.name);
        }
        for row in catalogue::all().iter().flat_map(|row| catalogue::subcommands_of(row.name)) {
            let first = first_key(&find(row.name.as_bytes()).unwrap().arguments, 2);
            let is_keyed = !key_specs::of_subcommand(row).is_empty();
            assert_eq!(first, is_keyed.then_some(2), "{}", row.name);
        }
    }

    #[test]
    fn each_key_is_found_by_a_specification_that_there_is() {
        fn check(name: &str, arguments: &[Argument], specs: usize) {
            for argument in arguments {
                if argument.kind == ArgumentKind::Key {
                    assert!(argument.key_spec.is_some(), "{name}");
                }
                assert!(argument.key_spec.is_none_or(|at| at < specs), "{name}");
                check(name, &argument.parts, specs);
            }
        }
        for page in all() {
            let specs = match catalogue::subcommand(page.name.as_bytes()) {
                Some(row) => key_specs::of_subcommand(row).len(),
                None => catalogue::command(page.name.as_bytes()).unwrap().shown_keys().count(),
            };
            check(page.name, &page.arguments, specs);
        }
    }
}
