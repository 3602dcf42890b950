//! Runs shell commands, some with a time limit, and distributes work over all cores.

use std::{
    fs::{self, File},
    num::NonZeroUsize,
    path::Path,
    process::{Command, ExitStatus},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};

use crate::root;

/// Returns a shell that runs `command` in the root of the repository.
pub(crate) fn shell_command(command: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(root());
    shell
}

/// Runs a command and returns its standard output.
pub(crate) fn stdout_of(command: &str) -> Result<String> {
    let output = shell_command(command).output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(output.status.success(), "{command}: {}\n{}", output.status, text(&output.stderr));
    Ok(text(&output.stdout))
}

/// Runs `command` until it ends. If the command takes longer than `limit`, or `should_stop` returns
/// true, kills it and all its descendants, and returns `None`.
pub(crate) fn supervise(
    command: &mut Command,
    limit: Duration,
    should_stop: impl Fn() -> bool,
) -> Result<Option<ExitStatus>> {
    let (start, mut child) = (Instant::now(), command.spawn()?);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() > limit || should_stop() {
            // Kills each descendant by its id: all share the process group of xtask, so that an
            // interrupt at the terminal reaches them too. The kill fails if a process has ended
            // already.
            let _ = stdout_of(&format!(
                "kill -KILL {}",
                process_tree(&child.id().to_string()).join(" ")
            ));
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// Like [`supervise`], but writes the command's output to the file `log`, and also returns it.
/// `should_stop` gets the output so far.
pub(crate) fn supervise_and_log(
    log: &Path,
    command: &mut Command,
    limit: Duration,
    should_stop: impl Fn(&str) -> bool,
) -> Result<(Option<ExitStatus>, String)> {
    let file = File::create(log)?;
    command.stdout(file.try_clone()?).stderr(file);
    let text = || fs::read(log).map(|text| String::from_utf8_lossy(&text).into_owned());
    let status = supervise(command, limit, || text().is_ok_and(|text| should_stop(&text)))?;
    Ok((status, text()?))
}

fn process_tree(process: &str) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    // Each process id is followed by a space.
    let children: String =
        threads.flat_map(|thread| fs::read_to_string(thread.path().join("children"))).collect();
    let mut tree = vec![process.to_owned()];
    tree.extend(children.split_whitespace().flat_map(process_tree));
    tree
}

/// Calls `work` once for each item, on as many threads as there are cores. Returns the results in
/// the order of completion.
pub(crate) fn on_all_cores<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let (remaining_items, results) = (Mutex::new(items.iter()), Mutex::new(Vec::new()));
    let next_item = || remaining_items.lock().expect("no holder panics").next();
    let work = || {
        while let Some(item) = next_item() {
            let result = work(item);
            results.lock().expect("no holder panics").push(result);
        }
    };
    thread::scope(|scope| {
        for _ in 0..cores.min(items.len()) {
            scope.spawn(work);
        }
    });
    results.into_inner().expect("no holder panics")
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_timed_out_process_is_killed_with_its_descendants() {
        let (start, (reader, writer)) = (Instant::now(), io::pipe().expect("a pipe"));
        let mut shell = shell_command("sleep 60 & sleep 60");
        shell.stdout(writer);
        let status = supervise(&mut shell, Duration::from_millis(300), || false).expect("started");
        drop(shell);
        // The pipe ends when the last process with its other end has ended.
        assert_eq!(io::read_to_string(reader).expect("readable"), "");
        assert!(status.is_none() && start.elapsed() < Duration::from_secs(30));
    }
}
