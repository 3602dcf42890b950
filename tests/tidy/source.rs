//! Splits a source into code and comments, and collects the names in its code.

pub(crate) struct Source {
    file: String,
    lines: Vec<Line>,
    pub(crate) names: Vec<Name>,
}

/// A line's code without string and character literals, and its comment.
#[derive(Default)]
struct Line {
    code: String,
    comment: String,
}

/// A name with its path as written. Inside braces, the path includes the part before the brace.
pub(crate) struct Name {
    pub(crate) line: usize,
    path: Vec<String>,
    pub(crate) import: bool,
}

impl Source {
    pub(crate) fn new(file: &str, text: &str) -> Self {
        let mut in_string = false;
        let mut lines: Vec<_> = text.lines().map(|line| Line::new(line, &mut in_string)).collect();
        erase_tests(&mut lines, file.ends_with("/tests.rs"));
        Self { file: file.to_owned(), names: collect_names(&lines), lines }
    }

    pub(crate) fn texts(&self) -> impl Iterator<Item = (usize, String)> {
        (1..).zip(self.lines.iter().map(|line| format!("{} {}", line.code, line.comment)))
    }

    fn at(&self, line: usize) -> &Line {
        &self.lines[line - 1]
    }

    pub(crate) fn module_path(&self) -> Vec<&str> {
        let path = self.file.trim_start_matches("src/").trim_end_matches(".rs");
        path.trim_end_matches("/mod").split('/').collect()
    }

    /// Returns true for the file `place`, and for files below a `place` that ends with `/`.
    pub(crate) fn is_in(&self, place: &str) -> bool {
        self.file == place || place.ends_with('/') && self.file.starts_with(place)
    }

    /// Returns the public types, traits and functions without an example, and their lines.
    pub(crate) fn without_example(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..=self.lines.len()).filter_map(|line| {
            let name = self.at(line).public_item()?;
            let belongs_to_item = |line: &&Line| {
                let code = line.code.trim_start();
                code.is_empty() || code.starts_with('#')
            };
            let lines_above = (1..line).rev().map(|above| self.at(above));
            let mut lines_of_item = lines_above.take_while(belongs_to_item);
            let is_exempt =
                |line: &Line| line.comment.starts_with("```") || line.code.contains("doc(hidden)");
            (!lines_of_item.any(is_exempt)).then_some((line, name))
        })
    }

    /// Returns the comments on `line` and up to `reach` lines above it in the same function,
    /// including the whole topmost comment.
    pub(crate) fn comments_above(&self, line: usize, reach: usize) -> String {
        let above = (1..line).rev().map(|number| (line - number, self.at(number)));
        let near = above.take_while(|(distance, above)| {
            !above.starts_function() && (*distance <= reach || !above.comment.is_empty())
        });
        let mut comments: Vec<&str> = near.map(|(_, above)| above.comment.as_str()).collect();
        comments.reverse();
        comments.push(&self.at(line).comment);
        comments.join(" ")
    }
}

impl Line {
    /// Splits a line. `in_string` is carried from line to line. Comments in `/* */` and quotes in
    /// raw strings are not supported.
    fn new(text: &str, in_string: &mut bool) -> Self {
        let mut code = String::new();
        let mut chars = text.chars();
        while let Some(char) = chars.next() {
            match char {
                '\\' if *in_string => _ = chars.next(),
                '"' => *in_string = !*in_string,
                _ if *in_string => {}
                '/' if chars.as_str().starts_with('/') => break,
                '\'' => chars = skip_literal(chars.as_str()).chars(),
                _ => code.push(char),
            }
        }
        let comment = chars.as_str().trim_start_matches(['/', '!']).trim().to_owned();
        Self { code: code.trim_end().to_owned(), comment }
    }

    fn public_item(&self) -> Option<&str> {
        let item = self.code.trim_start().strip_prefix("pub ")?;
        let item = item.trim_start_matches("const ").trim_start_matches("unsafe ");
        let (kind, rest) = item.split_once(' ')?;
        let end = rest.find(|char| !is_word(char));
        matches!(kind, "fn" | "struct" | "enum" | "trait")
            .then(|| &rest[..end.unwrap_or(rest.len())])
    }

    fn indent(&self) -> usize {
        self.code.len() - self.code.trim_start().len()
    }

    fn starts_function(&self) -> bool {
        tokens(&self.code).windows(2).any(|pair| pair[0] == "fn" && pair[1] != "(")
    }
}

impl Name {
    pub(crate) fn last(&self) -> &str {
        &self.path[self.path.len() - 1]
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        let wanted: Vec<&str> = name.split("::").collect();
        self.path.windows(wanted.len()).any(|part| part == wanted)
    }

    /// Resolves a path that starts with `crate` or `super` in the module `own`.
    pub(crate) fn resolve<'a>(&'a self, own: &[&'a str]) -> Option<Vec<&'a str>> {
        let supers = self.path.iter().take_while(|part| *part == "super").count();
        let (from, rest) = match self.path[0].as_str() {
            "crate" => (&own[..0], &self.path[1..]),
            "super" => (&own[..own.len().checked_sub(supers)?], &self.path[supers..]),
            _ => return None,
        };
        Some(from.iter().copied().chain(rest.iter().map(String::as_str)).collect())
    }
}

/// Returns the rest of a line after a quote: a character literal is skipped, a lifetime is not.
fn skip_literal(after_quote: &str) -> &str {
    let mut chars = after_quote.chars();
    match (chars.next(), chars.next()) {
        (Some('\\'), _) => chars.as_str().split_once('\'').map_or("", |(_, rest)| rest),
        (_, Some('\'')) => chars.as_str(),
        _ => after_quote,
    }
}

/// Blanks the lines of modules called `tests`; blanks every line if `all` is true.
fn erase_tests(lines: &mut [Line], all: bool) {
    let mut inside = None;
    for line in lines {
        if line.code.trim() == "mod tests {" {
            inside = Some(line.indent());
        }
        let closes = line.code.trim() == "}" && inside == Some(line.indent());
        if all || inside.is_some() {
            *line = Line::default();
        }
        if closes {
            inside = None;
        }
    }
}

/// Splits code into words, `::` and single characters.
fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|char| !is_word(char)).unwrap_or(rest.len());
        let sign = if rest.starts_with("::") { 2 } else { first.len_utf8() };
        let (token, tail) = rest.split_at(if word > 0 { word } else { sign });
        tokens.push(token);
        rest = tail.trim_start();
    }
    tokens
}

fn collect_names(lines: &[Line]) -> Vec<Name> {
    let mut names: Vec<Name> = Vec::new();
    let mut braces: Vec<Vec<String>> = Vec::new();
    let mut import = false;
    let mut previous = ["", ""];
    for (line, number) in lines.iter().zip(1..) {
        for token in tokens(&line.code) {
            let joined = previous[1] == "::" && previous[0].starts_with(is_word);
            match token {
                "{" => {
                    braces.push(names.pop_if(|_| joined).map_or_else(Vec::new, |name| name.path));
                }
                "}" => drop(braces.pop()),
                ";" => import = false,
                _ if !token.starts_with(is_word) => {}
                _ if joined => names.last_mut().expect("joined name").path.push(token.to_owned()),
                _ => {
                    import |= token == "use";
                    let mut path = braces.last().cloned().unwrap_or_default();
                    path.push(token.to_owned());
                    names.push(Name { line: number, path, import });
                }
            }
            previous = [previous[1], token];
        }
    }
    names
}

fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}
