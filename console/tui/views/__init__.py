"""The views, one package each; `registry.VIEWS` lists them."""
