//! Words not used in comments, pages and names.

use super::{Source, collect, expect_none, offences, root, sources};

/// Words that no comment uses: threads, transactions and records are things, and each has a name of
/// its own. docs/glossary.md has the terms.
const BANNED_IN_COMMENTS: &[&str] = &[
    "who",
    "whoever",
    "whom",
    "somebody",
    "someone",
    "nobody",
    "no one",
    "anybody",
    "anyone",
    "everybody",
    "everyone",
    "so many",
    "so much",
    "given up",
    "gives up",
    "give up",
    "come to",
    "comes to",
    "came to",
    "put down",
    "puts down",
];

/// The pages are read by people, so "who" may stand for them there.
const BANNED_IN_PAGES: &[&str] = &[
    "whoever",
    "somebody",
    "nobody",
    "anybody",
    "everybody",
    "so many",
    "given up",
    "gives up",
    "give up",
    "come to",
    "comes to",
    "put down",
    "puts down",
];

/// Whether a variable, a parameter or a field is named `of`. In code the word is else the name of a
/// function, or of the part after two colons.
fn names_a_variable_of(code: &str) -> bool {
    let strings_out: String = code.split('"').step_by(2).collect();
    let starts = ["let of", "let mut of", "|of", "(of", ", of", "&of", "*of", "{ of", "for of"];
    let is_end = |rest: &str| {
        let next = rest.trim_start();
        !next.starts_with("::") && next.starts_with(|c: char| ")|,;:=.]}?+-*/<>&".contains(c))
            || rest.starts_with(" in ")
    };
    let begins = !code.trim_start().starts_with("use ")
        && starts.iter().any(|start| {
            let mut found = strings_out.match_indices(start);
            found.any(|(at, _)| is_end(&strings_out[at + start.len()..]))
        });
    let reads = strings_out.match_indices("of.").any(|(at, _)| {
        let before = strings_out[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "_:.".contains(c))
            && strings_out[at + 3..].starts_with(|c: char| c.is_ascii_lowercase() || c == '0')
    });
    begins || reads
}

#[test]
fn no_variable_is_named_of() {
    for code in ["let of = 1;", "|of| 1", "f(of, 1)", "(a, of)", "&of;", "of.0", "for of in x"] {
        assert!(names_a_variable_of(code), "{code}");
    }
    for code in
        ["Kind::of(head)", "fn of(self)", "let offset = 1;", "f(\"made of, \")", ", of which"]
    {
        assert!(!names_a_variable_of(code), "{code}");
    }
    let bad = |_: &str, code: &str| names_a_variable_of(code);
    expect_none(offences(&sources(), bad), "variables named `of`: say what of");
}

/// The comment of a line. A string may hold `//` in an address, which is not looked at.
fn comment(line: &str) -> &str {
    let found = line.find("//").filter(|at| *at == 0 || line.as_bytes()[at - 1] != b':');
    found.map_or("", |at| &line[at..])
}

/// The first of these words, or pairs of words, in the text.
fn banned_in<'b>(text: &str, banned: &[&'b str]) -> Option<&'b str> {
    let text = text.to_lowercase();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    banned.iter().copied().find(|word| {
        text.match_indices(word).any(|(at, _)| {
            !text[..at].ends_with(is_word) && !text[at + word.len()..].starts_with(is_word)
        })
    })
}

#[test]
fn comments_and_pages_use_plain_words() {
    let mut found = Vec::new();
    let mut look = |source: &Source, banned: &[&str], text: fn(&str) -> &str| {
        for (at, line) in source.text.lines().enumerate() {
            if let Some(word) = banned_in(text(line), banned) {
                found.push(format!("{}:{}: {word:?}: {}", source.path, at + 1, line.trim()));
            }
        }
    };
    for source in sources() {
        look(&source, BANNED_IN_COMMENTS, comment);
    }
    let mut pages = Vec::new();
    collect(&root(), &[".md"], &mut pages);
    assert!(pages.len() > 8, "the pages were found");
    // The glossary names the unused words.
    for page in pages.iter().filter(|page| page.path != "docs/glossary.md") {
        look(page, BANNED_IN_PAGES, |line| line);
    }
    expect_none(found, "words that docs/glossary.md has better ones for");
}
