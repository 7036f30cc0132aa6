//! The blocks of a page that are played: configurations (`nginx`; `nginx refused`: one that is not taken),
//! commands that prepare files (`sh`), and sessions (`console`): commands behind `$ `, and what each prints.

/// A block of a page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A server is started with it.
    Configuration(String),
    /// A server refuses it.
    Refused(String),
    /// Commands of a shell, before the server starts.
    Prepare(String),
    /// Commands and what they print, beside the server.
    Session(Vec<Command>),
}

/// A command of a session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Command {
    /// Line of the page.
    pub(crate) line: usize,
    pub(crate) command: String,
    /// Lines that it prints; `…` stands for any number of lines, or for any part of one.
    pub(crate) expected: Vec<String>,
}

/// What is to be played of a page, in order.
pub(crate) fn steps(text: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((_, line)) = lines.next() {
        let Some(info) = line.strip_prefix("```") else { continue };
        let block: Vec<(usize, &str)> = lines.by_ref().take_while(|(_, line)| *line != "```").collect();
        let joined = || block.iter().map(|(_, line)| format!("{line}\n")).collect::<String>();
        match info {
            "nginx" => steps.push(Step::Configuration(joined())),
            "nginx refused" => steps.push(Step::Refused(joined())),
            "sh" => steps.push(Step::Prepare(joined())),
            "console" => steps.push(Step::Session(session(&block))),
            _ => {}
        }
    }
    steps
}

fn session(block: &[(usize, &str)]) -> Vec<Command> {
    let mut commands: Vec<Command> = Vec::new();
    for (at, line) in block {
        if let Some(command) = line.strip_prefix("$ ") {
            commands.push(Command { line: at + 1, command: command.to_owned(), expected: Vec::new() });
        } else if let Some(last) = commands.last_mut() {
            match last.command.strip_suffix('\\') {
                Some(begun) => last.command = format!("{begun}{}", line.trim_start()),
                None => last.expected.push((*line).to_owned()),
            }
        }
    }
    commands
}

/// Whether lines are what a page says. `gaps`: it may leave out lines without saying so, as of heads.
pub(crate) fn is_as_expected(printed: &[&str], expected: &[String], gaps: Gaps) -> bool {
    let Some((first, rest)) = expected.split_first() else {
        return gaps == Gaps::Allowed || printed.iter().all(|line| line.is_empty());
    };
    let gap = first == "…" || gaps == Gaps::Allowed;
    let wanted = if first == "…" { expected.get(1..).unwrap_or_default() } else { expected };
    if first == "…" && wanted.is_empty() {
        return true;
    }
    let rest = if first == "…" { wanted.get(1..).unwrap_or_default() } else { rest };
    let starts = 0..if gap { printed.len() } else { printed.len().min(1) };
    starts
        .into_iter()
        .any(|at| is_line(printed[at], &wanted[0]) && is_as_expected(&printed[at + 1..], rest, gaps))
}

/// What a page may leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gaps {
    Allowed,
    Marked,
}

/// Whether a line is as the page has it, `…` standing for anything.
fn is_line(printed: &str, expected: &str) -> bool {
    let mut parts = expected.split('…');
    let Some(mut rest) = printed.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut ended_with_gap = false;
    for part in parts {
        ended_with_gap = part.is_empty();
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.is_empty()
        || ended_with_gap
        || expected.rsplit('…').next().is_some_and(|end| expected.contains('…') && printed.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_become_steps() {
        let page = "# A\n```sh\necho a\n```\ntext\n```nginx\nx;\n```\n```text\nno\n```\n\
                    ```console\n$ one \\\n  more\nout\n\n$ two\n```\n";
        let of = |line, command: &str, expected: &[&str]| Command {
            line,
            command: command.to_owned(),
            expected: expected.iter().map(|&line| line.to_owned()).collect(),
        };
        assert_eq!(
            steps(page),
            [
                Step::Prepare("echo a\n".to_owned()),
                Step::Configuration("x;\n".to_owned()),
                Step::Session(vec![of(13, "one more", &["out", ""]), of(17, "two", &[])]),
            ]
        );
    }

    #[test]
    fn lines_are_compared() {
        let is = |printed: &[&str], expected: &[&str], gaps| {
            let expected: Vec<String> = expected.iter().map(|&line| line.to_owned()).collect();
            is_as_expected(printed, &expected, gaps)
        };
        assert!(is(&["a", "b"], &["a", "b"], Gaps::Marked));
        assert!(!is(&["a", "b"], &["a"], Gaps::Marked));
        assert!(!is(&["a", "x", "b"], &["a", "b"], Gaps::Marked));
        assert!(is(&["a", "x", "b"], &["a", "b"], Gaps::Allowed));
        assert!(is(&["a", "x", "b"], &["a", "…", "b"], Gaps::Marked));
        assert!(is(&["a", "x"], &["a", "…"], Gaps::Marked));
        assert!(!is(&["a"], &["b"], Gaps::Allowed));
        assert!(is(&["it took 12 ms"], &["it took … ms"], Gaps::Marked));
        assert!(!is(&["it took 12 s"], &["it took … ms"], Gaps::Marked));
        assert!(is(&["at 12"], &["at …"], Gaps::Marked));
    }
}
