//! Streams an answer over gRPC: deadline, retries that the server asks for, Ctrl-C.
//!
//!     generate PROMPT [ADDRESS]

use std::io::Write;
use std::time::Duration;

use tonic::{Request, Status};
use tonic_types::StatusExt;

mod weft {
    tonic::include_proto!("weft.v1");
}
use weft::generate_request::Prompt;
use weft::text_generation_client::TextGenerationClient;
use weft::{GenerateRequest, SamplingParameters, StoppingParameters};

const DEADLINE: Duration = Duration::from_secs(60);
const TRIES: u32 = 5;

type Client = TextGenerationClient<tonic::transport::Channel>;

/// Prints one answer. `begun` becomes true with its first text, `name` is what the server calls it.
async fn generate(
    client: &mut Client,
    message: &GenerateRequest,
    begun: &mut bool,
    name: &mut String,
) -> Result<(), Status> {
    let mut request = Request::new(message.clone());
    request.set_timeout(DEADLINE);
    let response = client.generate(request).await?;
    if let Some(value) = response.metadata().get("x-request-id") {
        *name = value.to_str().unwrap_or("-").into();
    }
    let mut stream = response.into_inner();
    while let Some(event) = stream.message().await? {
        *begun = true;
        print!("{}", event.output.map(|output| output.text).unwrap_or_default());
        let _ = std::io::stdout().flush();
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let prompt = arguments.next().ok_or("usage: generate PROMPT [ADDRESS]")?;
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:8081".into());
    let mut client = Client::connect(format!("http://{address}")).await?;
    let message = GenerateRequest {
        prompt: Some(Prompt::Text(prompt)),
        sampling: Some(SamplingParameters { temperature: Some(0.0), ..Default::default() }),
        stopping: Some(StoppingParameters { max_tokens: Some(32), ..Default::default() }),
        ..Default::default()
    };
    for tries in 1..=TRIES {
        let (mut begun, mut name) = (false, String::from("-"));
        let result = tokio::select! {
            result = generate(&mut client, &message, &mut begun, &mut name) => result,
            // The stream is dropped, which cancels the request.
            _ = tokio::signal::ctrl_c() => std::process::exit(130),
        };
        let Err(status) = result else {
            println!();
            return Ok(());
        };
        eprintln!("[{:?}: {} (request {name})]", status.code(), status.message());
        let delay = status.get_details_retry_info().and_then(|info| info.retry_delay);
        match delay {
            Some(delay) if !begun && tries < TRIES => tokio::time::sleep(delay).await,
            _ => break,
        }
    }
    std::process::exit(1);
}
