//! Reads the imports of a source file.

/// A word, `::`, or a single character, with its line, counted from 1.
pub type Token<'t> = (usize, &'t str);

/// Names of modules, from the crate's root down.
pub type Path = Vec<String>;

/// An imported path.
#[derive(Debug, PartialEq)]
pub struct Import {
    pub line: usize,
    pub path: Path,
    /// The name under which the file exports the path again, if any.
    pub exported: Option<String>,
}

/// The code of a file without comments and literals.
pub fn tokens(text: &str) -> Vec<Token<'_>> {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || !b.is_ascii();
    let (mut rest, mut line, mut out) = (text, 1, Vec::new());
    while let Some(first) = rest.bytes().next() {
        let skipped = literal_or_comment(rest);
        let length = match first {
            _ if skipped > 0 => skipped,
            first if is_word(first) => rest.bytes().take_while(|&b| is_word(b)).count(),
            b':' if rest.starts_with("::") => 2,
            _ => 1,
        };
        let token = &rest[..length];
        if skipped == 0 && !token.trim().is_empty() {
            out.push((line, token));
        }
        line += token.matches('\n').count();
        rest = &rest[length..];
    }
    out
}

/// The length of the comment or the literal at the start of `text`, or 0.
fn literal_or_comment(text: &str) -> usize {
    let until = |from: usize, end: &str| {
        text[from..].find(end).map_or(text.len(), |at| from + at + end.len())
    };
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if text.starts_with("/*") {
        return until(2, "*/");
    }
    if let Some(raw) = text.strip_prefix("br").or_else(|| text.strip_prefix('r')) {
        let hashes = raw.bytes().take_while(|&b| b == b'#').count();
        if raw[hashes..].starts_with('"') {
            let start = text.len() - raw.len() + hashes + 1;
            return until(start, &format!("\"{}", "#".repeat(hashes)));
        }
    }
    let quoted = |quote: char| {
        let mut escaped = false;
        let end = text[1..].find(|c| {
            let ends = c == quote && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        end.map_or(text.len(), |at| at + 2)
    };
    let mut chars = text.chars();
    match (chars.next(), chars.next(), chars.next()) {
        (Some('"'), ..) => quoted('"'),
        // A lifetime has no second quote.
        (Some('\''), Some('\\'), _) | (Some('\''), _, Some('\'')) => quoted('\''),
        _ => 0,
    }
}

/// The end of the item that begins at `at`, with its attributes.
fn item_end(tokens: &[Token<'_>], at: usize) -> usize {
    let mut depth = 0;
    for (i, (_, token)) in tokens.iter().enumerate().skip(at) {
        match *token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 && (*token == "}" || *token == ";") {
            return i + 1;
        }
        if depth < 0 {
            return i;
        }
    }
    tokens.len()
}

/// Takes out the code compiled only for tests. Returns its modules in other files.
pub fn take_tests_out<'t>(tokens: &mut Vec<Token<'t>>) -> Vec<&'t str> {
    let (mut modules, mut at) = (Vec::new(), 0);
    while at < tokens.len() {
        let words = |from: usize, n: usize| tokens[from..].iter().take(n).map(|t| t.1);
        if !words(at, 4).eq(["#", "[", "cfg", "("]) {
            at += 1;
            continue;
        }
        let end = at + words(at, tokens.len()).position(|word| word == "]").expect("its end");
        let is_test = |i: usize| tokens[i].1 == "test" && !words(i - 2, 2).eq(["not", "("]);
        if !(at..end).any(is_test) {
            at = end;
            continue;
        }
        let end = item_end(tokens, end + 1);
        if words(end - 3, 3).eq(["mod", tokens[end - 2].1, ";"]) {
            modules.push(tokens[end - 2].1);
        }
        tokens.drain(at..end);
    }
    modules
}

/// The imports of a file; `children` are the modules below the file with files of their own.
pub fn imports(module: &[String], children: &[&str], tokens: &[Token<'_>]) -> Vec<Import> {
    let word = |i: usize| tokens.get(i).map_or("", |t| t.1);
    let mut out = Vec::new();
    // Modules in the file itself, with the depth of their braces.
    let (mut inner, mut depth) = (Vec::<(&str, usize)>::new(), 0);
    for at in 0..tokens.len() {
        let before = |n: usize| at.checked_sub(n).map_or("", word);
        match word(at) {
            "{" => {
                depth += 1;
                if before(2) == "mod" {
                    inner.push((before(1), depth));
                }
            }
            "}" => {
                inner.retain(|&(_, opened)| opened < depth);
                depth -= 1;
            }
            "crate" | "self" | "super" => {}
            name if inner.is_empty() && children.contains(&name) => {}
            _ => continue,
        }
        // `pub(in crate::..)` imports nothing.
        let is_visibility = before(1) == "in" && before(2) == "(";
        if word(at + 1) == "::" && before(1) != "::" && !is_visibility {
            let names = inner.iter().map(|(name, _)| (*name).to_string());
            let here = module.iter().cloned().chain(names).collect();
            let is_exported = before(1) == "use" && ["pub", ")"].contains(&before(2));
            add_tree(tokens, at, here, is_exported, &mut out);
        }
    }
    out
}

/// Adds the path at `at`, or each path of a tree in braces; `prefix` is the start of each path.
/// Returns the end of the path or tree.
fn add_tree(
    tokens: &[Token<'_>],
    mut at: usize,
    mut prefix: Path,
    is_exported: bool,
    out: &mut Vec<Import>,
) -> usize {
    let word = |i: usize| tokens.get(i).map_or("", |t| t.1);
    let line = tokens.get(at).map_or(0, |t| t.0);
    loop {
        match word(at) {
            "{" => {
                at += 1;
                while word(at) != "}" {
                    at = add_tree(tokens, at, prefix.clone(), is_exported, out);
                    // Behind `as`, and the comma.
                    while !["}", ","].contains(&word(at)) {
                        at += 1;
                    }
                    at += usize::from(word(at) == ",");
                }
                return at + 1;
            }
            "crate" => prefix.clear(),
            "super" => drop(prefix.pop()),
            "self" | "*" | "<" => {}
            name => prefix.push(name.to_string()),
        }
        if word(at + 1) != "::" {
            break;
        }
        at += 2;
    }
    let own = || prefix.last().cloned().unwrap_or_default();
    let name = if word(at + 1) == "as" { word(at + 2).to_string() } else { own() };
    out.push(Import { line, exported: is_exported.then_some(name), path: prefix });
    at + 1
}
