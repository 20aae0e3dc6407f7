"""Why devices are refused: funnels, and the causes behind them."""
