//! What the commands do and their arguments, as COMMAND DOCS tells it.
//!
//! A command has a line `name since complexity: summary`, where `-` is no complexity, and its
//! [syntax] in indented lines below.

use super::key_specs;
use super::syntax::{self, Argument};
use std::sync::OnceLock;

const TEXTS: [&str; 5] = [
    include_str!("pages/strings.txt"),
    include_str!("pages/collections.txt"),
    include_str!("pages/sorted_sets.txt"),
    include_str!("pages/keys.txt"),
    include_str!("pages/server.txt"),
];

/// What a command, or a subcommand, does.
pub struct DocPage {
    /// Its name: `get`, `config|set`.
    pub name: &'static str,
    /// The version that brought it: of Redis, or of Hyades for its own commands.
    pub since: &'static str,
    /// How its time grows with the data.
    pub complexity: Option<&'static str>,
    pub summary: &'static str,
    pub arguments: Vec<Argument>,
}

/// All of them by name.
pub fn all() -> &'static [DocPage] {
    static ALL_PAGES: OnceLock<Vec<DocPage>> = OnceLock::new();
    ALL_PAGES.get_or_init(|| {
        let page = |text| page(text).expect("the tests read all of them");
        let mut all: Vec<DocPage> = TEXTS.into_iter().flat_map(split).map(page).collect();
        all.sort_by_key(|page| page.name);
        all
    })
}

/// The page of a command, or of a subcommand by its whole name, in any case.
pub fn find(name: &[u8]) -> Option<&'static DocPage> {
    let lower = name.to_ascii_lowercase();
    all().binary_search_by(|page| page.name.as_bytes().cmp(&lower)).ok().map(|at| &all()[at])
}

/// The subcommands of a command.
pub fn subcommands(command: &str) -> Vec<&'static DocPage> {
    let is_of = |page: &&DocPage| page.name.split_once('|').is_some_and(|(of, _)| of == command);
    all().iter().filter(is_of).collect()
}

/// The texts of the commands: each begins with a line that is not indented.
fn split(text: &'static str) -> Vec<&'static str> {
    let (mut texts, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let mut lines = rest.match_indices('\n').map(|(at, _)| at + 1);
        let end = lines.find(|at| !rest[*at..].starts_with(' ')).unwrap_or(rest.len());
        texts.push(&rest[..end]);
        rest = &rest[end..];
    }
    texts
}

fn page(text: &'static str) -> Result<DocPage, String> {
    let (head, syntax) = text.split_once('\n').unwrap_or((text, ""));
    let (head, summary) = head.split_once(": ").ok_or_else(|| format!("no summary: {head}"))?;
    let mut words = head.splitn(3, ' ');
    let (Some(name), Some(since), Some(complexity)) = (words.next(), words.next(), words.next())
    else {
        return Err(format!("no complexity: {head}"));
    };
    let mut arguments = syntax::parse(syntax).map_err(|text| format!("{name}: {text}"))?;
    syntax::number_keys(&mut arguments, key_specs::named(name).len());
    let complexity = Some(complexity).filter(|complexity| *complexity != "-");
    Ok(DocPage { name, since, complexity, summary, arguments })
}

#[cfg(test)]
mod tests {
    use super::super::syntax::ArgumentKind;
    use super::*;
    use crate::access::catalogue;
    use crate::commands::table::{self, Command};

    /// The place of the first key among the words of a request, of which some came before.
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

    fn is_container(name: &str) -> bool {
        !subcommands(name).is_empty()
    }

    #[test]
    fn every_text_is_read() {
        let mut names = Vec::new();
        for text in TEXTS.into_iter().flat_map(split) {
            let page = page(text).unwrap_or_else(|error| panic!("{error}: {text}"));
            assert!(page.summary.len() > 5 && page.summary.len() < 90, "{text}");
            assert!(!page.summary.ends_with('.') && !page.summary.contains("  "), "{text}");
            let numbers: Vec<&str> = page.since.split('.').collect();
            assert!(
                numbers.len() == 3 && numbers.iter().all(|n| n.parse::<u8>().is_ok()),
                "{text}"
            );
            names.push(page.name);
        }
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] < pair[1]), "each has one text");
    }

    #[test]
    fn every_command_that_is_built_has_a_page_and_no_other() {
        for command in table::all() {
            assert!(find(command.name.as_bytes()).is_some(), "{}", command.name);
        }
        for page in all() {
            let (command, _) = page.name.split_once('|').unwrap_or((page.name, ""));
            assert!(table::find(command.as_bytes()).is_some(), "{}", page.name);
            assert!(catalogue::find(page.name.as_bytes()).is_some(), "{}", page.name);
        }
        assert_eq!(find(b"Config|GET").map(|page| page.name), Some("config|get"));
        assert!(find(b"get|key").is_none() && find(b"config|get|key").is_none());
        assert!(find(b"").is_none());
    }

    #[test]
    fn arities_are_those_of_the_table() {
        for command in table::all().iter().filter(|command| !is_container(command.name)) {
            let page = find(command.name.as_bytes()).unwrap();
            let least = 1 + syntax::least_words(&page.arguments);
            assert_eq!(least, command.arity.unsigned_abs() as usize, "{}", command.name);
            // Some exact numbers are looked at by the command itself, as in Redis.
            let is_fixed = page.arguments.iter().all(Argument::is_fixed);
            assert!(is_fixed || command.arity < 0, "{}", command.name);
        }
    }

    #[test]
    fn first_keys_are_those_of_the_table() {
        for command in table::all().iter().filter(|command| !is_container(command.name)) {
            let page = find(command.name.as_bytes()).unwrap();
            let first = key_specs::first_places(command).first().copied();
            assert_eq!(first_key(&page.arguments, 1), first, "{}", command.name);
        }
        let of = |command: &'static Command| subcommands(command.name);
        for page in table::all().iter().flat_map(of) {
            let first = first_key(&page.arguments, 2);
            let is_keyed = !key_specs::named(page.name).is_empty();
            assert_eq!(first, is_keyed.then_some(2), "{}", page.name);
        }
    }

    #[test]
    fn each_key_is_found_by_a_specification_that_there_is() {
        fn check(page: &DocPage, arguments: &[Argument], specs: usize) {
            for argument in arguments {
                if argument.kind == ArgumentKind::Key {
                    assert!(argument.key_spec.is_some(), "{}", page.name);
                }
                assert!(argument.key_spec.is_none_or(|at| at < specs), "{}", page.name);
                check(page, &argument.parts, specs);
            }
        }
        for page in all() {
            check(page, &page.arguments, key_specs::named(page.name).len());
        }
    }
}
