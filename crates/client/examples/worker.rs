//! A worker with one typed handler, which reports its progress and continues where an earlier attempt
//! stopped. With a server on this machine:
//!
//! ```text
//! export PUNCTUAL_TOKEN=$(cat punctual-data/admin.token)
//! cargo run -p punctual-client --features worker --example worker
//! punctual job submit resize --type ImageProcessing --payload '{"imageUrl": "http://img.com/1.png"}' --wait
//! ```

use punctual_client::Client;
use punctual_client::worker::{Context, HandlerError, Worker};
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Image {
    image_url: String,
}

#[derive(Serialize)]
struct Processed {
    file: String,
    attempt: u32,
    key: String,
}

const STEPS: u32 = 4;

/// A placeholder for slow work.
async fn process_step(_step: u32) {
    tokio::task::yield_now().await;
}

async fn process_image(context: Context, image: Image) -> Result<Processed, HandlerError> {
    let Some((_, file)) = image.image_url.rsplit_once('/') else {
        return Err(HandlerError::permanent(format!("{} is not the address of an image", image.image_url)));
    };
    context.log(format!("processing {file}")).await;
    // Steps that an earlier attempt has finished are not repeated.
    let done: u32 = context.checkpoint()?.unwrap_or_default();
    for step in done..STEPS {
        context.progress(f64::from(step * 100 / STEPS), format!("step {step} of {STEPS}"));
        tokio::select! {
            () = process_step(step) => context.save_checkpoint(&(step + 1)).await?,
            () = context.stopping() => return Err(HandlerError::new("asked to stop")),
        }
    }
    Ok(Processed {
        file: file.to_owned(),
        attempt: context.attempt_number(),
        key: context.idempotency_key().to_string(),
    })
}

pub fn worker(client: Client) -> Worker {
    Worker::builder(client)
        .name("example")
        .slots(4)
        .stop_grace(Duration::from_secs(5))
        .handler("ImageProcessing", process_image)
        .build()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = std::env::var("PUNCTUAL_SERVER").unwrap_or_else(|_| "127.0.0.1:7070".to_owned());
    let client = Client::new(&server, std::env::var("PUNCTUAL_TOKEN")?)?;
    let interrupted = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    worker(client).run_until(interrupted).await?;
    Ok(())
}
