//! A set of rules: which commands may be run, on which keys and channels.

use crate::base::glob;
use crate::catalogue::{CATEGORIES, KeyAccess, NamedChannels, RequestKeys, category, names};
use std::fmt;

/// A rule is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleError {
    /// The text is no rule.
    Syntax,
    /// There is no such command or category.
    UnknownCommand,
    /// All keys are allowed already.
    AfterAllKeys,
    /// All channels are allowed already.
    AfterAllChannels,
    /// The password to remove is none of the user's.
    NoSuchPassword,
    /// A hash is 64 hexadecimal digits in lower case.
    BadHash,
    /// A first argument of a subcommand cannot be allowed.
    FirstArgument,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RuleError::Syntax => "Syntax error",
            RuleError::UnknownCommand => "Unknown command or category name in ACL",
            RuleError::AfterAllKeys => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and \
                 does not have any effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            RuleError::AfterAllChannels => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid \
                 and does not have any effect. Try 'resetchannels' to start with an empty list of \
                 channels"
            }
            RuleError::NoSuchPassword => {
                "The password you are trying to remove from the user does not exist"
            }
            RuleError::BadHash => {
                "The password hash must be exactly 64 characters and contain only lowercase \
                 hexadecimal characters"
            }
            RuleError::FirstArgument => "Allowing first-arg of a subcommand is not supported",
        })
    }
}

/// The reason of a refusal. Later variants are more specific.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denied {
    /// The command is not allowed.
    Command,
    /// The key at this place among the arguments is not allowed.
    Key(usize),
    /// The channel at this place is not allowed.
    Channel(usize),
}

/// Keys that may be read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KeyPattern {
    allows: KeyAccess,
    pattern: Vec<u8>,
}

/// Places of the catalogue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CommandSet([u64; 7]);

impl CommandSet {
    fn has(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 == 1
    }

    fn set(&mut self, at: usize, to: bool) {
        let bit = 1 << (at % 64);
        match to {
            true => self.0[at / 64] |= bit,
            false => self.0[at / 64] &= !bit,
        }
    }
}

/// A set of rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    allowed: CommandSet,
    all_commands: bool,
    /// Commands allowed with this first argument alone, by their places.
    first_arguments: Vec<(usize, Vec<u8>)>,
    /// The rules on commands behind `+@all` or `-@all`: the source of the three fields above.
    command_rules: Vec<String>,
    has_all_commands_first: bool,
    all_keys: bool,
    keys: Vec<KeyPattern>,
    all_channels: bool,
    channels: Vec<Vec<u8>>,
}

/// Whether a word would break the lines of written rules.
pub fn has_blanks(word: &[u8]) -> bool {
    word.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0x0b || *byte == 0)
}

impl Selector {
    /// No rights, except all channels if `all_channels`.
    pub fn new(all_channels: bool) -> Selector {
        Selector { all_channels, ..Selector::default() }
    }

    /// Whether nothing is refused.
    pub fn allows_all(&self) -> bool {
        self.all_commands && self.all_keys && self.all_channels
    }

    /// Adds a rule.
    ///
    /// # Errors
    /// The rule is not possible; nothing has changed.
    pub fn add(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        let lower = rule.to_ascii_lowercase();
        match &lower[..] {
            b"allkeys" | b"~*" => (self.all_keys, self.keys) = (true, Vec::new()),
            b"resetkeys" => (self.all_keys, self.keys) = (false, Vec::new()),
            b"allchannels" | b"&*" => (self.all_channels, self.channels) = (true, Vec::new()),
            b"resetchannels" => (self.all_channels, self.channels) = (false, Vec::new()),
            b"allcommands" | b"+@all" => self.set_all_commands(true),
            b"nocommands" | b"-@all" => self.set_all_commands(false),
            [b'~' | b'%', ..] => return self.add_keys(rule),
            [b'&', ..] => return self.add_channels(&rule[1..]),
            [sign @ (b'+' | b'-'), b'@', name @ ..] => {
                let bit = category(name).ok_or(RuleError::UnknownCommand)?;
                let is_in = |named: &names::NamedCommand| named.categories & bit != 0;
                self.set_commands(*sign == b'+', &format!("@{}", text(name)), is_in);
            }
            [sign @ (b'+' | b'-'), name @ ..] => return self.add_command(*sign == b'+', name),
            _ => return Err(RuleError::Syntax),
        }
        Ok(())
    }

    fn set_all_commands(&mut self, to: bool) {
        self.allowed = CommandSet([if to { u64::MAX } else { 0 }; 7]);
        (self.all_commands, self.has_all_commands_first) = (to, to);
        self.first_arguments.clear();
        self.command_rules.clear();
    }

    fn add_keys(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        if self.all_keys {
            return Err(RuleError::AfterAllKeys);
        }
        let (mut allows, mut rest) = (KeyAccess::Any, &rule[1..]);
        if rule[0] == b'~' {
            allows = KeyAccess::Both;
        } else {
            loop {
                let (first, after) = rest.split_first().ok_or(RuleError::Syntax)?;
                rest = after;
                allows = match (first.to_ascii_uppercase(), allows) {
                    (b'R', KeyAccess::Any | KeyAccess::Write) => allows.and(KeyAccess::Read),
                    (b'W', KeyAccess::Any | KeyAccess::Read) => allows.and(KeyAccess::Write),
                    (b'~', KeyAccess::Read | KeyAccess::Write | KeyAccess::Both) => break,
                    _ => return Err(RuleError::Syntax),
                };
            }
        }
        if has_blanks(rest) {
            return Err(RuleError::Syntax);
        }
        match self.keys.iter_mut().find(|rule| rule.pattern == rest) {
            Some(known) => known.allows = known.allows.and(allows),
            None => self.keys.push(KeyPattern { allows, pattern: rest.to_vec() }),
        }
        Ok(())
    }

    fn add_channels(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        if self.all_channels {
            return Err(RuleError::AfterAllChannels);
        }
        if has_blanks(pattern) {
            return Err(RuleError::Syntax);
        }
        if !self.channels.iter().any(|known| known == pattern) {
            self.channels.push(pattern.to_vec());
        }
        Ok(())
    }

    fn add_command(&mut self, allow: bool, name: &[u8]) -> Result<(), RuleError> {
        if let Some(at) = names::find(name) {
            let named = &names::all()[at];
            let prefix = format!("{}|", named.name);
            let is_it = |command: &names::NamedCommand| {
                command.name == named.name || command.name.starts_with(&prefix)
            };
            self.set_commands(allow, named.name, is_it);
            return Ok(());
        }
        let bar = name.iter().rposition(|byte| *byte == b'|').filter(|_| allow);
        let bar = bar.ok_or(RuleError::UnknownCommand)?;
        let at = names::find(&name[..bar]).ok_or(RuleError::UnknownCommand)?;
        let (named, argument) = (&names::all()[at], &name[bar + 1..]);
        match () {
            () if named.name.contains('|') => Err(RuleError::FirstArgument),
            () if argument.is_empty() || has_blanks(argument) => Err(RuleError::Syntax),
            () if named.is_container => Err(RuleError::UnknownCommand),
            () => {
                let pair = (at, argument.to_vec());
                if !self.first_arguments.contains(&pair) {
                    self.first_arguments.push(pair);
                    self.command_rules.push(format!("+{}|{}", named.name, text(argument)));
                }
                Ok(())
            }
        }
    }

    /// Allows or refuses some commands, by a rule of this name. A rule without effect is not kept,
    /// nor is an earlier rule made void by the new rule: the remaining rules yield the same.
    fn set_commands(
        &mut self,
        allow: bool,
        name: &str,
        is_in: impl Fn(&names::NamedCommand) -> bool,
    ) {
        let (mut allowed, mut kept) = (self.allowed, self.first_arguments.clone());
        for (at, _) in names::all().iter().enumerate().filter(|(_, named)| is_in(named)) {
            allowed.set(at, allow);
            kept.retain(|(place, _)| *place != at);
        }
        if allowed == self.allowed && kept == self.first_arguments {
            return;
        }
        let below = format!("{name}|");
        let is_void = |rule: &str| rule[1..] == *name || rule[1..].starts_with(&below);
        self.command_rules.retain(|rule| !is_void(rule));
        self.command_rules.push(format!("{}{name}", if allow { '+' } else { '-' }));
        (self.allowed, self.first_arguments) = (allowed, kept);
        self.all_commands &= allow;
    }

    /// Checks whether a request is allowed. `command` is the place of its command in the catalogue;
    /// `None` for an unknown command. A free command needs no right.
    ///
    /// # Errors
    /// The request is refused, with the reason.
    pub fn check(
        &self,
        (command, is_free): (Option<usize>, bool),
        args: &[&[u8]],
        needs: &RequestKeys,
    ) -> Result<(), Denied> {
        let has_command = || {
            let Some(at) = command else { return false };
            let is_it = |(place, word): &(usize, Vec<u8>)| {
                *place == at && args.get(1).is_some_and(|arg| arg.eq_ignore_ascii_case(word))
            };
            self.allowed.has(at) || self.first_arguments.iter().any(is_it)
        };
        if !self.all_commands && !is_free && !has_command() {
            return Err(Denied::Command);
        }
        if !self.all_keys {
            for (at, flags) in &needs.keys {
                if !self.allows_key(args[*at], KeyAccess::of(*flags)) {
                    return Err(Denied::Key(*at));
                }
            }
        }
        let refused = |at: &usize| !self.allows_channel(args[*at], needs.channels());
        match needs.channel_places(args.len()).find(refused) {
            Some(at) => Err(Denied::Channel(at)),
            None => Ok(()),
        }
    }

    fn allows_key(&self, key: &[u8], need: KeyAccess) -> bool {
        let mut fitting = self.keys.iter().filter(|rule| rule.allows.covers(need));
        self.all_keys || fitting.any(|rule| glob::matches(&rule.pattern, key, false))
    }

    /// Whether all keys may be read.
    pub fn reads_all_keys(&self) -> bool {
        let is_all =
            |rule: &KeyPattern| rule.allows.covers(KeyAccess::Read) && rule.pattern == b"*";
        self.all_keys || self.keys.iter().any(is_all)
    }

    /// Whether a channel may be used. A pattern is allowed if equal to a pattern of a rule.
    pub fn allows_channel(&self, name: &[u8], channels: NamedChannels) -> bool {
        let fits = |pattern: &Vec<u8>| match channels {
            NamedChannels::Patterns => pattern == name,
            _ => glob::matches(pattern, name, false),
        };
        self.all_channels || self.channels.iter().any(fits)
    }

    /// The rules on commands.
    pub fn describe_commands(&self) -> String {
        let first = if self.has_all_commands_first { "+@all" } else { "-@all" };
        let rules = self.command_rules.iter().map(String::as_str);
        std::iter::once(first).chain(rules).collect::<Vec<_>>().join(" ")
    }

    /// The rules on keys.
    pub fn describe_keys(&self) -> Vec<u8> {
        if self.all_keys {
            return b"~*".to_vec();
        }
        let rule = |key: &KeyPattern| [key.allows.prefix(), &key.pattern].concat();
        self.keys.iter().map(rule).collect::<Vec<_>>().join(&b' ')
    }

    /// The rules on channels.
    pub fn describe_channels(&self) -> Vec<u8> {
        if self.all_channels {
            return b"&*".to_vec();
        }
        let rule = |pattern: &Vec<u8>| [b"&", &pattern[..]].concat();
        self.channels.iter().map(rule).collect::<Vec<_>>().join(&b' ')
    }

    /// All rules, in the form to be read.
    pub fn describe(&self) -> Vec<u8> {
        let mut parts = vec![self.describe_keys()];
        if !self.all_channels {
            parts.push(b"resetchannels".to_vec());
        }
        parts.extend([self.describe_channels(), self.describe_commands().into_bytes()]);
        parts.retain(|part| !part.is_empty());
        parts.join(&b' ')
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const _: () = assert!(CATEGORIES.len() <= 32, "a bit for each");

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn with(rules: &str) -> Selector {
        let mut selector = Selector::default();
        rules.split_whitespace().for_each(|rule| selector.add(rule.as_bytes()).unwrap());
        selector
    }

    #[test]
    fn rules_are_described_as_they_are_read() {
        for (rules, commands) in [
            ("", "-@all"),
            ("+@all -client|kill", "+@all -client|kill"),
            ("+memory|doctor", "-@all +memory|doctor"),
            ("+memory|doctor +memory", "-@all +memory"),
            ("+@all +client|id", "+@all"),
            ("+@all -memory|doctor -memory", "+@all -memory"),
            (
                "+@all -client +client|id +client|setname",
                "+@all -client +client|id +client|setname",
            ),
            ("-debug +debug|a +debug|b -debug", "-@all -debug"),
            ("+@string -@string", "-@all -@string"),
        ] {
            assert_eq!(with(rules).describe_commands(), commands, "{rules}");
        }
        let selector = with("%R~a %W~a %RW~b ~c &d &d");
        assert_eq!(selector.describe(), b"~a ~b ~c resetchannels &d -@all");
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for (rules, last, error) in [
            ("", "nonsense", RuleError::Syntax),
            ("", "%~a", RuleError::Syntax),
            ("", "%RR~a", RuleError::Syntax),
            ("", "+get|a|b", RuleError::UnknownCommand),
            ("", "+config|no", RuleError::UnknownCommand),
            ("", "-get|a", RuleError::UnknownCommand),
            ("", "+config|get|a", RuleError::FirstArgument),
            ("", "+debug|", RuleError::Syntax),
            ("", "+@no", RuleError::UnknownCommand),
            ("~*", "~a", RuleError::AfterAllKeys),
            ("&*", "&a", RuleError::AfterAllChannels),
        ] {
            let mut selector = with(rules);
            assert_eq!(selector.add(last.as_bytes()), Err(error), "{last}");
            assert_eq!(selector, with(rules));
        }
    }

    proptest! {
        /// ACL LOAD reads the text of ACL SAVE, with the same meaning.
        #[test]
        fn a_description_means_the_same(rules in proptest::collection::vec(0usize..16, 0..12)) {
            const RULES: [&str; 16] = [
                "+@all", "-@all", "+@string", "-@string", "+@write", "-@fast", "+get", "-get",
                "+config", "-config", "+config|set", "-config|get", "+select|0", "-select",
                "+debug|a", "+@dangerous",
            ];
            let mut selector = Selector::default();
            for rule in rules {
                selector.add(RULES[rule].as_bytes()).unwrap();
            }
            let mut again = with(&String::from_utf8(selector.describe()).unwrap());
            prop_assert_eq!(again.allowed, selector.allowed);
            again.first_arguments.sort();
            selector.first_arguments.sort();
            prop_assert_eq!(again.first_arguments, selector.first_arguments);
        }
    }
}
