//! Generates text with a language model: a Hugging Face folder, or a GGUF file.
//!
//! `cargo run --release --features llm --example llama -- --model DIR_OR_GGUF [--prompt TEXT | --chat TEXT [--system TEXT]]
//! [--max-tokens N] [--temperature T] [--top-k N] [--top-p P] [--min-p P] [--seed N] [--device cpu|gpu]
//! [--activations int8|float] [--beams N | --draft DIR_OR_GGUF]`
//!
//! `--draft` names a smaller model of the same vocabulary, which proposes tokens: the text is the same, in fewer steps.
//! On the CPU activations are rounded to 8 bits unless `--activations float` is given.

use lucid::llm::decoder::{Cache, Decoder};
use lucid::llm::sampling::Settings;
use lucid::llm::text::Texts;
use lucid::prelude::*;
use lucid::Generator;
use std::io::Write;
use std::time::Instant;

/// What was asked for.
struct Options {
    model: String,
    prompt: String,
    chat: Option<String>,
    system: Option<String>,
    most: usize,
    settings: Settings,
    generator: Option<Generator>,
    device: Device,
    rounds: Option<bool>,
    beams: usize,
    draft: Option<String>,
}

/// Tokens that a smaller model proposes at a time.
const AHEAD: usize = 4;

const USAGE: &str = "llama --model DIR_OR_GGUF [--prompt TEXT | --chat TEXT [--system TEXT]] [--max-tokens N]
    [--temperature T] [--top-k N] [--top-p P] [--min-p P] [--seed N] [--device cpu|gpu] [--activations int8|float]
    [--beams N | --draft DIR_OR_GGUF]";

fn wrong(why: String) -> Box<Error> {
    Error::value("llama", why)
}

fn options() -> Result<Options> {
    let mut made = Options {
        model: String::new(),
        prompt: "Once upon a time".into(),
        chat: None,
        system: None,
        most: 128,
        settings: Settings::default(),
        generator: None,
        device: Device::Cpu,
        rounds: None,
        beams: 1,
        draft: None,
    };
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        if matches!(name.as_str(), "-h" | "--help") {
            println!("{USAGE}");
            std::process::exit(0);
        }
        let value = given.next().ok_or_else(|| wrong(format!("{name} needs a value")))?;
        let number = || value.parse::<f64>().map_err(|_| wrong(format!("{name} needs a number, got {value:?}")));
        let count = || value.parse::<usize>().map_err(|_| wrong(format!("{name} needs a number, got {value:?}")));
        match name.as_str() {
            "--model" => made.model = value,
            "--prompt" => made.prompt = value,
            "--chat" => made.chat = Some(value),
            "--system" => made.system = Some(value),
            "--beams" => made.beams = count()?,
            "--draft" => made.draft = Some(value),
            "--max-tokens" => made.most = count()?,
            "--temperature" => made.settings.temperature = number()?,
            "--top-k" => made.settings.top_k = count()?,
            "--top-p" => made.settings.top_p = number()?,
            "--min-p" => made.settings.min_p = number()?,
            "--seed" => {
                let generator = Generator::new();
                generator.manual_seed(count()? as u64);
                made.generator = Some(generator);
            }
            "--activations" if value == "int8" => made.rounds = Some(true),
            "--activations" if value == "float" => made.rounds = Some(false),
            "--device" if value == "gpu" => made.device = Device::Gpu,
            "--device" if value == "cpu" => made.device = Device::Cpu,
            _ => return Err(wrong(format!("{name} {value} is not understood"))),
        }
    }
    match made.model.is_empty() {
        true => Err(wrong("--model is needed".into())),
        false => Ok(made),
    }
}

fn main() -> Result<()> {
    let given = options()?;
    let started = Instant::now();
    let rounds = given.rounds.unwrap_or(given.device == Device::Cpu);
    let (model, texts) = (Decoder::load_with(&given.model, given.device, rounds)?, Texts::load(&given.model)?);
    eprintln!("{:.1} MB of weights in {:.1} s", model.bytes() as f64 / 1e6, started.elapsed().as_secs_f64());
    let prompt = match &given.chat {
        Some(text) => {
            let system = given.system.iter().map(|s| ("system", s.as_str()));
            texts.conversation(&system.chain([("user", text.as_str())]).collect::<Vec<_>>())?
        }
        None => {
            print!("{}", given.prompt);
            texts.tokenizer.encode(&given.prompt, true)?
        }
    };
    let mut cache = Cache::default();
    let (mut stream, mut count) = (texts.stream(), 0);
    let started = Instant::now();
    // A search has no first token.
    let mut first = (given.beams != 1).then_some(started);
    let show = |text: String| {
        print!("{text}");
        let _ = std::io::stdout().flush();
    };
    let each = |token| {
        first.get_or_insert_with(Instant::now);
        count += 1;
        show(stream.add(token)?);
        Ok(true)
    };
    let (most, settings, generator) = (given.most, &given.settings, given.generator.as_ref());
    match &given.draft {
        _ if given.beams != 1 => {
            model.beam_search(&prompt, most, given.beams, 1.0)?.into_iter().map(each).collect::<Result<Vec<_>>>()?;
        }
        Some(path) => {
            let draft = Decoder::load_with(path, given.device, rounds)?;
            model.generate_with_draft(&draft, AHEAD, &prompt, most, settings, generator, each)?;
        }
        None => model.generate(&prompt, most, settings, generator, &mut cache, each)?,
    }
    show(stream.finish()? + "\n");
    let first = first.unwrap_or(started);
    let read = prompt.len() as f64 / first.duration_since(started).as_secs_f64().max(1e-9);
    let wrote = (count as f64 - 1.0).max(0.0) / first.elapsed().as_secs_f64().max(1e-9);
    let cached = cache.bytes() as f64 / 1e6;
    eprintln!("{} tokens read at {read:.1}/s, {count} written at {wrote:.1}/s, cache {cached:.1} MB", prompt.len());
    Ok(())
}
