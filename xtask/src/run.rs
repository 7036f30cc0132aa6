//! Starting the processes that commands consist of, always in the repository's root.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// What a command ends with: nothing, or one message for the terminal.
pub(crate) type Outcome = Result<(), String>;

/// The repository's root, from where this program was compiled.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask lies one level below the root").to_path_buf()
}

/// Where cargo puts what it builds, unless a step names another directory.
pub(crate) fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// One process, started in the root.
pub(crate) struct Step {
    command: Command,
    shown: String,
}

impl Step {
    /// `line` is split at spaces; what holds spaces is added with [`Step::arg`].
    pub(crate) fn new(line: &str) -> Self {
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().expect("a step names a program"));
        command.args(words).current_dir(root());
        Self { command, shown: line.to_owned() }
    }

    /// The cargo that runs this program, so that a `+toolchain` holds for the steps as well.
    pub(crate) fn cargo(line: &str) -> Self {
        let mut step = Self::new(&format!("cargo {line}"));
        if let Some(cargo) = std::env::var_os("CARGO") {
            let mut command = Command::new(cargo);
            command.args(line.split_whitespace()).current_dir(root());
            step.command = command;
        }
        step
    }

    /// The same on one processor, with all processes that it starts.
    pub(crate) fn pinned(line: &str) -> Result<Self, String> {
        let status = std::fs::read_to_string("/proc/self/status").map_err(|e| e.to_string())?;
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let first = allowed.and_then(|list| list.trim().split([',', '-']).next()).unwrap_or("0");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let step = Self::new(&format!("taskset --cpu-list {first}")).arg(&cargo.to_string_lossy());
        Ok(line.split_whitespace().fold(step, |step, word| step.arg(word)))
    }

    pub(crate) fn arg(mut self, arg: &str) -> Self {
        self.command.arg(arg);
        self.shown = format!("{} '{arg}'", self.shown);
        self
    }

    pub(crate) fn env(mut self, key: &str, value: &str) -> Self {
        self.command.env(key, value);
        self.shown = format!("{key}='{value}' {}", self.shown);
        self
    }

    pub(crate) fn env_remove(mut self, key: &str) -> Self {
        self.command.env_remove(key);
        self
    }

    /// The process itself, for a caller that reads what it prints, and how it is shown.
    pub(crate) fn into_command(self) -> (Command, String) {
        (self.command, self.shown)
    }

    /// Runs it with this terminal; says what runs and how long it took.
    pub(crate) fn run(mut self) -> Outcome {
        eprintln!("+ {}", self.shown);
        let began = Instant::now();
        let status = self.command.status().map_err(|e| format!("{}: {e}", self.shown))?;
        eprintln!("  ({:.0} s)", began.elapsed().as_secs_f64());
        if status.success() { Ok(()) } else { Err(format!("failed ({status}): {}", self.shown)) }
    }

    /// Runs it with the time that others leave, and shows what it printed in one piece when it has ended.
    pub(crate) fn run_aside(self) -> Outcome {
        let mut nice = Command::new("nice");
        nice.args(["-n", "19"]).arg(self.command.get_program()).args(self.command.get_args());
        nice.current_dir(root());
        for (key, value) in self.command.get_envs() {
            match value {
                Some(value) => nice.env(key, value),
                None => nice.env_remove(key),
            };
        }
        eprintln!("+ (beside what follows) {}", self.shown);
        let began = Instant::now();
        let output = nice.output().map_err(|e| format!("{}: {e}", self.shown))?;
        eprintln!("+ (ended after {:.0} s) {}", began.elapsed().as_secs_f64(), self.shown);
        eprint!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if output.status.success() {
            Ok(())
        } else {
            Err(format!("failed ({}): {}", output.status, self.shown))
        }
    }

    /// Runs it and returns what it wrote to standard output.
    pub(crate) fn output(mut self) -> Result<Vec<u8>, String> {
        self.command.stderr(std::process::Stdio::inherit());
        let output = self.command.output().map_err(|e| format!("{}: {e}", self.shown))?;
        if output.status.success() {
            Ok(output.stdout)
        } else {
            Err(format!("failed ({}): {}", output.status, self.shown))
        }
    }
}

/// Whether a program of that name is on the search path.
pub(crate) fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
        .any(|dir| dir.join(program).is_file())
}
