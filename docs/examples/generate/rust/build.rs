// Stubs from the protos; WEFT_PROTO is their folder.
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::var("WEFT_PROTO").unwrap_or_else(|_| "../../../../proto".into());
    tonic_prost_build::configure().build_server(false).compile_protos(
        &[format!("{folder}/weft/v1/types.proto"), format!("{folder}/weft/v1/generation.proto")],
        &[folder],
    )?;
    Ok(())
}
